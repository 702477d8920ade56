// Package framingtest has the requests with which a test finds out whether a server,
// or one behind a proxy, frames requests as RFC 9112 says.
package framingtest

// Next is a request that each case ends with: a request that a proxy took for a part of the
// request before must not be answered.
const Next = "GET /next HTTP/1.1\r\nHost: x\r\n\r\n"

// Case is what a client sends.
type Case struct {
	Sent string
	// Want are the statuses of all answers of a server that answers good requests
	// with 204, such as "204 204".
	Want string
}

// Post is a request with these lines of its header, and the body.
func Post(header, body string) string {
	return "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n" + header + "\r\n" + body
}

// Length is the header line for a body of 5 bytes.
const Length = "Content-Length: 5\r\n"

// Chunked is the header line for a body in chunks.
const Chunked = "Transfer-Encoding: chunked\r\n"

// Good are cases of two good requests, by name.
func Good() map[string]Case {
	return map[string]Case{
		"good":                        {Post(Length, "hello") + Next, "204 204"},
		"good, chunked":               {Post(Chunked, "5\r\nhello\r\n0\r\n\r\n") + Next, "204 204"},
		"good, a chunk extension":     {Post(Chunked, "5;a=b\r\nhello\r\n0\r\n\r\n") + Next, "204 204"},
		"good, absolute form":         {"GET http://x/ HTTP/1.1\r\n" + host + "\r\n" + Next, "204 204"},
		"good, names in lower case":   {"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + Next, "204 204"},
		"good, with a body":           {"GET / HTTP/1.1\r\n" + host + Length + "\r\nhello" + Next, "204 204"},
		"good, trailers":              {Post(Chunked, "0\r\nA: b\r\n\r\n") + Next, "204 204"},
		"good, an empty line between": {Post(Length, "hello") + "\r\n" + Next, "204 204"},
		"good, HTTP/1.0":              {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n" + host + "\r\n" + Next, "204 204"},
	}
}

// Bad are cases that a server refuses, by name.
func Bad() map[string]Case {
	return map[string]Case{
		"good, the same length twice": {Post(Length+Length, "hello") + Next, "400"},
		"two lengths":                 {Post(Length+"Content-Length: 3\r\n", "hello") + Next, "400"},
		"a list of lengths":           {Post("Content-Length: 5, 5\r\n", "hello") + Next, "400"},
		"a signed length":             {Post("Content-Length: +5\r\n", "hello") + Next, "400"},
		"a length in hex":             {Post("Content-Length: 0x5\r\n", "hello") + Next, "400"},
		"a negative length":           {Post("Content-Length: -5\r\n", "hello") + Next, "400"},
		"an empty length":             {Post("Content-Length:\r\n", "hello") + Next, "400"},
		"a length beside chunked":     {Post(Length+Chunked, "0\r\n\r\n") + Next, "400"},
		"chunked beside a length":     {Post(Chunked+Length, "0\r\n\r\n") + Next, "400"},
		"gzip and chunked":            {Post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n") + Next, "400"},
		"identity":                    {Post("Transfer-Encoding: identity\r\n", "") + Next, "400"},
		"an unknown encoding":         {Post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n") + Next, "400"},
		"chunked twice":               {Post(Chunked+Chunked, "0\r\n\r\n") + Next, "400"},
		"a space before the colon":    {Post("Content-Length : 5\r\n", "hello") + Next, "400"},
		"a tab before chunked":        {Post("Transfer-Encoding:\x0bchunked\r\n", "0\r\n\r\n") + Next, "400"},
		"two hosts":                   {"GET / HTTP/1.1\r\n" + host + "Host: y\r\n\r\n" + Next, "400"},
		"no host":                     {"GET / HTTP/1.1\r\n\r\n" + Next, "400"},
		"a NUL in a value":            {"GET / HTTP/1.1\r\n" + host + "A: b\x00c\r\n\r\n" + Next, "400"},
		"a CR in a value":             {"GET / HTTP/1.1\r\n" + host + "A: b\rc\r\n\r\n" + Next, "400"},
		"a NUL in a name":             {"GET / HTTP/1.1\r\n" + host + "A\x00: b\r\n\r\n" + Next, "400"},
		"a line without a colon":      {"GET / HTTP/1.1\r\n" + host + "abc\r\n\r\n" + Next, "400"},
		"a folded line":               {"GET / HTTP/1.1\r\n" + host + "A: b\r\n c\r\n\r\n" + Next, "400"},
		"a space before a name":       {"GET / HTTP/1.1\r\n " + host + "\r\n" + Next, "400"},
		"LF ends a header line":       {"GET / HTTP/1.1\r\n" + host + "A: b\nB: c\r\n\r\n" + Next, "400"},
		"LF ends the request line":    {"GET / HTTP/1.1\n" + host + "\r\n" + Next, "400"},
		"LF in a chunk extension":     {Post(Chunked, "5;a\nb\r\nhello\r\n0\r\n\r\n") + Next, "400"},
		"a chunk size with a sign":    {Post(Chunked, "+5\r\nhello\r\n0\r\n\r\n") + Next, "400"},
		"a chunk size of 17 digits":   {Post(Chunked, "00000000000000005\r\nhello\r\n0\r\n\r\n") + Next, "400"},
		"a chunk that is too long":    {Post(Chunked, "3\r\nhello\r\n0\r\n\r\n") + Next, "400"},
		"LF ends a chunk":             {Post(Chunked, "5\nhello\n0\n\n") + Next, "400"},
		"HTTP/9.9":                    {"GET / HTTP/9.9\r\n" + host + "\r\n" + Next, "400"},
		"HTTP/1.2":                    {"GET / HTTP/1.2\r\n" + host + "\r\n" + Next, "400"},
		"two spaces":                  {"GET /  HTTP/1.1\r\n" + host + "\r\n" + Next, "400"},
		"no version":                  {"GET /\r\n" + host + "\r\n" + Next, "400"},
		"a space in the method":       {"GE T / HTTP/1.1\r\n" + host + "\r\n" + Next, "400"},
		"chunked in HTTP/1.0":         {"POST / HTTP/1.0\r\n" + host + Chunked + "\r\n0\r\n\r\n" + Next, "400"},
		"LF ends a trailer":           {Post(Chunked, "0\r\nA: b\n\r\n") + Next, "400"},
		"LF in front of a request":    {"\n" + Next, ""},
	}
}

const host = "Host: x\r\n"
