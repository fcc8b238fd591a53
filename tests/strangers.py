"""Clients that do not behave: HTTP/2 frames and the link's messages by hand, over TLS, with or without a certificate."""
import contextlib
import json
import os
import socket
import ssl
import struct
import threading
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
# How large the attacks are: 1 is quick, and enough to tell a bounded server from another.
SCALE = float(os.environ.get("SELVEDGE_ATTACK_SCALE", "1"))


def scaled(count):
    return max(1, int(count * SCALE))


def context(ca, alpn=(), cert=None, key=None):
    tls = ssl.create_default_context(cafile=str(ca))
    if alpn:
        tls.set_alpn_protocols(list(alpn))
    if cert:
        tls.load_cert_chain(str(cert), str(key))
    return tls


def connect(center, tls, timeout=10):
    raw = socket.create_connection((center.host, center.port), timeout=timeout)
    try:
        return tls.wrap_socket(raw, server_hostname=center.host)
    except BaseException:
        raw.close()
        raise


def ended_after(sock, most):
    """How long it takes until the other side has ended the connection; None if it has not after so many seconds."""
    begun = time.monotonic()
    while (left := begun + most - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            if not sock.recv(65536):
                return time.monotonic() - begun
        except TimeoutError:
            return None
        except OSError:
            return time.monotonic() - begun
    return None


# ---- HTTP/2 ----

def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def header_block(pairs):
    """HPACK without its tables: every field as a literal that is not indexed."""
    def text(value):
        value = value.encode()
        assert len(value) < 127
        return bytes((len(value),)) + value
    return b"".join(b"\0" + text(name) + text(value) for name, value in pairs)


class H2:
    """One HTTP/2 connection. Keeps to the server's windows, and to nothing else."""

    def __init__(self, center, cert=None, key=None):
        self.sock = connect(center, context(center.ca, ["h2"], cert, key))
        self.host = f"{center.host}:{center.port}"
        self.sock.settimeout(None)
        self.changed = threading.Condition()
        self.window, self.first, self.windows = 65535, 65535, {}
        self.streams_allowed = None
        self.status, self.over, self.next = {}, False, 1
        self.sending = threading.Lock()
        self.send(PREFACE + frame(SETTINGS, 0, 0))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        with self.changed:
            self.changed.wait_for(lambda: self.streams_allowed is not None or self.over, 10)

    def send(self, data):
        with self.sending:
            self.sock.sendall(data)

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise OSError("the connection ended")
            data += piece
        return data

    def _read(self):
        with contextlib.suppress(OSError, ssl.SSLError, ValueError):
            while True:
                head = self._exactly(9)
                length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                stream = int.from_bytes(head[5:], "big") & 0x7fffffff
                body = self._exactly(length)
                if kind == SETTINGS and not flags & ACK:
                    self.send(frame(SETTINGS, ACK, 0))
                if kind == PING and not flags & ACK:
                    self.send(frame(PING, ACK, 0, body))
                if kind == DATA and length:
                    self.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", length)))
                with self.changed:
                    self._note(kind, flags, stream, body)
                    self.changed.notify_all()
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def _note(self, kind, flags, stream, body):
        if kind == SETTINGS and not flags & ACK:
            values = {int.from_bytes(body[i:i + 2], "big"): int.from_bytes(body[i + 2:i + 6], "big") for i in range(0, len(body), 6)}
            self.first = values.get(4, self.first)
            self.streams_allowed = values.get(3, 0)
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(body, "big")
            if stream:
                self.windows[stream] = self.windows.get(stream, self.first) + more
            else:
                self.window += more
        elif kind == HEADERS:
            # Statuses that HPACK has a number for, and a literal one.
            known = {0x88: 200, 0x8b: 304, 0x8c: 400, 0x8d: 404, 0x8e: 500}
            literal = body.find(b"\x03")
            self.status[stream] = known.get(body[0], body[literal + 1:literal + 4] if literal >= 0 else body[:8])
        elif kind == RST_STREAM:
            self.status.setdefault(stream, "reset")
        elif kind == GOAWAY:
            self.over = True

    def post(self, path, headers=()):
        """The number of a request whose body is to come."""
        stream, self.next = self.next, self.next + 2
        fields = [(":method", "POST"), (":scheme", "https"), (":authority", self.host), (":path", path),
                  ("content-type", "application/json"), *headers]
        self.send(frame(HEADERS, END_HEADERS, stream, header_block(fields)))
        return stream

    def body(self, stream, data, end=False, seconds=0.0):
        """Sends as much as the windows allow; how much that was."""
        sent, until = 0, time.monotonic() + seconds
        while sent < len(data) and not self.over:
            with self.changed:
                room = lambda: min(self.window, self.windows.get(stream, self.first), len(data) - sent, 16384)  # noqa: E731
                if room() <= 0 and not self.changed.wait_for(lambda: room() > 0 or self.over or stream in self.status,
                                                             max(0.0, until - time.monotonic())):
                    return sent
                if self.over or stream in self.status:
                    return sent
                now = room()
                self.window -= now
                self.windows[stream] = self.windows.get(stream, self.first) - now
            self.send(frame(DATA, 0, stream, data[sent:sent + now]))
            sent += now
        if end and sent == len(data):
            self.send(frame(DATA, END_STREAM, stream))
        return sent

    def reset(self, stream):
        self.send(frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))

    def wait(self, stream, seconds=20):
        with self.changed:
            self.changed.wait_for(lambda: stream in self.status or self.over, seconds)
            return self.status.get(stream)

    def close(self):
        # Closed only when nobody reads any more: the number of the file would be another's by then.
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.reader.join(5)
        self.sock.close()


# ---- the link ----

def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uint(field, value):
    return varint(field << 3) + varint(value) if value else b""


def data_field(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def fields(message):
    """The fields of a message as (number, value); of numbers the number, of bytes the bytes."""
    at, found = 0, []

    def number():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = number()
        if tag & 7 == 0:
            found.append((tag >> 3, number()))
        else:
            length = number()
            found.append((tag >> 3, message[at:at + length]))
            at += length
    return found


class Link:
    """An edge's session, without an edge behind it: says what a test wants said, with the edge's own certificate."""
    WELCOME, NODES, BATCH, REPORT_ACK, HEARTBEAT, CLOSE = 2, 3, 5, 9, 10, 11

    def __init__(self, center, cert, key, holds=0):
        self.sock = connect(center, context(center.ca, ["selvedge-link"], cert, key), timeout=20)
        self.epoch, self.counter, self.seq = int(time.time() * 1000), 1, 0
        # Hello: versions 1 to 1, nothing seen, a root that is nobody's.
        self.say(1, uint(1, 1) + uint(2, 1) + data_field(8, bytes(16)) + uint(9, holds))
        while True:
            kind, body = self.hear()
            assert kind != self.CLOSE, fields(body)
            if kind == self.WELCOME:
                return

    def say(self, kind, body):
        message = bytes((kind,)) + body
        self.sock.sendall(b"\0" + struct.pack(">I", len(message)) + message)

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise OSError("the center ended the session")
            data += piece
        return data

    def hear(self):
        flag, length = struct.unpack(">BI", self._exactly(5))
        body = self._exactly(length)
        assert flag in (0, 1), body
        if flag:
            import gzip
            body = gzip.decompress(body)
        return body[0], body[1:]

    def report(self, *reports, wait=True):
        """Reports (key, state) and waits for the acknowledgement. A state of None says that the object is gone."""
        self.seq += 1
        body = uint(1, self.seq)
        for key, state in reports:
            self.counter += 1
            one = data_field(1, key.encode()) + uint(2, self.epoch) + uint(3, self.counter)
            if state is None:
                one += uint(5, 1)
            else:
                one += data_field(4, state if isinstance(state, bytes) else json.dumps(state, separators=(",", ":")).encode())
            body += data_field(2, one)
        self.say(8, body)
        while wait:
            kind, body = self.hear()
            assert kind != self.CLOSE, fields(body)
            if kind == self.REPORT_ACK and dict(fields(body)).get(1) == self.seq:
                return

    def close(self):
        self.sock.close()
