//! What the header compression of SPDY/3 begins with, on both sides: words of headers, each behind its length, and usual values.

const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age \
allow authorization cache-control connection content-base content-encoding content-language content-length content-location \
content-md5 content-range content-type date etag expect expires from host if-match if-modified-since if-none-match if-range \
if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after \
server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get status";

const MORE: [&str; 8] = ["200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin"];

const VALUES: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found\
500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 \
Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,\
text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// By which a compressed stream says that it begins with this dictionary: its Adler-32.
pub const ID: u32 = 0xe3c6_a7c2;

pub fn dictionary() -> Vec<u8> {
    let mut all = Vec::with_capacity(1423);
    for word in WORDS.split(' ').chain(MORE) {
        all.extend((word.len() as u32).to_be_bytes());
        all.extend(word.as_bytes());
    }
    all.extend(VALUES.as_bytes());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_one_that_everybody_has() {
        let (mut a, mut b) = (1u32, 0u32);
        for byte in dictionary() {
            a = (a + u32::from(byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!((dictionary().len(), b << 16 | a), (1423, ID));
    }
}
