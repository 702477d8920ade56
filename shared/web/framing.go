package web

import (
	"bytes"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// misframed reports whether a proxy may see another request in these bytes than
// fasthttp does: an unknown version, a header line that ends in LF alone or that is
// folded, a transfer encoding that is not chunked, or one beside a length (RFC 9112,
// sections 2.2, 2.3, 5.2 and 6.1). The rest fasthttp refuses itself.
func misframed(h *fasthttp.RequestHeader) bool {
	if p := string(h.Protocol()); p != "HTTP/1.1" && p != "HTTP/1.0" {
		return true
	}
	length, encoding := false, false
	for line := range bytes.SplitSeq(bytes.TrimSuffix(h.RawHeaders(), []byte("\n")), []byte("\n")) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(line) == 0 || line[len(line)-1] != '\r' || line[0] == ' ' || line[0] == '\t':
			return true
		case bytes.EqualFold(name, []byte(fiber.HeaderContentLength)):
			length = true
		case bytes.EqualFold(name, []byte(fiber.HeaderTransferEncoding)):
			encoding = true
			if !strings.EqualFold(string(bytes.TrimSpace(value)), "chunked") {
				return true
			}
		}
	}
	return length && encoding
}
