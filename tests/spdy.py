"""The little of SPDY/3.1 that a kubelet's port-forward needs, inside a WebSocket's messages: streams are opened with headers
`streamtype` (error, data) and `requestid`, data streams are answered and closed."""
import struct
import zlib

# The dictionary of SPDY/3, as its specification gives it: the words that headers are made of, each behind its length.
WORDS = """options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow
authorization cache-control connection content-base content-encoding content-language content-length content-location
content-md5 content-range content-type date etag expect expires from host if-match if-modified-since if-none-match
if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range
referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get
status""".split()
MORE = ["200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin"]
TAIL = (b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
        b"203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
        b"404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
        b"Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
        b"chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
        b"publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.")
DICTIONARY = b"".join(struct.pack(">I", len(w)) + w.encode() for w in WORDS + MORE) + TAIL


def serve(ws, answer):
    inflate = zlib.decompressobj(zdict=DICTIONARY)
    deflate = zlib.compressobj(zdict=DICTIONARY)
    buffer, types, seen = b"", {}, {}

    def headers(block):
        raw = inflate.decompress(block)
        count, = struct.unpack(">I", raw[:4])
        at, found = 4, {}
        for _ in range(count):
            pair = []
            for _ in range(2):
                length, = struct.unpack(">I", raw[at:at + 4])
                pair.append(raw[at + 4:at + 4 + length].decode())
                at += 4 + length
            found[pair[0]] = pair[1]
        return found

    def control(kind, flags, body):
        ws.send(struct.pack(">HHI", 0x8003, kind, flags << 24 | len(body)) + body)

    while True:
        opcode, payload = ws.receive()
        if opcode == 8:
            return
        buffer += payload
        while len(buffer) >= 8:
            length = struct.unpack(">I", buffer[4:8])[0] & 0xFFFFFF
            if len(buffer) < 8 + length:
                break
            head, body, buffer = buffer[:8], buffer[8:8 + length], buffer[8 + length:]
            flags = head[4]
            if head[0] & 0x80:
                kind, = struct.unpack(">H", head[2:4])
                if kind == 1:  # SYN_STREAM
                    stream, = struct.unpack(">I", body[:4])
                    types[stream] = headers(body[10:])["streamtype"]
                    seen[stream] = b""
                    empty = deflate.compress(struct.pack(">I", 0)) + deflate.flush(zlib.Z_SYNC_FLUSH)
                    control(2, 0, struct.pack(">I", stream) + empty)
                elif kind == 6:  # PING
                    control(6, 0, body)
                continue
            stream, = struct.unpack(">I", head[:4])
            if types.get(stream) == "data" and body:
                reply = answer(body)
                ws.send(struct.pack(">II", stream, len(reply)) + reply)
            if flags & 1 and types.get(stream) == "data":
                ws.send(struct.pack(">II", stream, 1 << 24))
