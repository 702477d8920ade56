package contract

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"flightline/shared/testenv/program"
	"flightline/shared/web"
)

// errorOfOurs checks that an answer is an error as docs/errors.md has it.
func errorOfOurs(status int, header http.Header, raw []byte) error {
	if status < http.StatusBadRequest {
		return fmt.Errorf("got %d %s, want an error", status, raw)
	}
	var body struct {
		Error     string `json:"error"`
		Code      string `json:"code"`
		RequestID string `json:"requestId"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return fmt.Errorf("got %d %q, want a JSON object: %w", status, raw, err)
	}
	switch _, err := uuid.Parse(body.RequestID); {
	case header.Get("Content-Type") != "application/json":
		return fmt.Errorf("got the content type %q, want JSON", header.Get("Content-Type"))
	case err != nil || header.Get("X-Request-Id") != body.RequestID:
		return fmt.Errorf("got the request id %q and the header %q, want the same", body.RequestID, header.Get("X-Request-Id"))
	case body.Error == "" || web.Codes()[web.Code(body.Code)] != status:
		return fmt.Errorf("got %d %s, want a text and a code that goes with the status", status, raw)
	}
	return nil
}

// defect is bytes on a connection, and what answers them.
type defect struct {
	name, raw string
	// want is the status, 0 if any 4xx is right.
	want int
	// cut closes our side of the connection after raw: without that the server
	// waits for the rest, up to its read timeout.
	cut bool
	// silent says why it is right that there is no answer.
	silent string
}

// Whatever arrives is answered with a 4xx and a JSON error, never with a 5xx
// and never with a connection that just ends.
func TestBadInputIsAnsweredProperly(t *testing.T) {
	s := program.New(t)
	url := s.Start("dev", "--no-demo", "--api-key", contractKey, "--limits", "off").Line(program.Ready)
	w := newEnv(t, contractKey, url, url)
	p := w.endpoint(t, "")
	job := p.submit(`{}`, "").text("id")
	address := strings.TrimPrefix(url, "http://")
	fill := strings.NewReplacer("{key}", contractKey, "{ep}", p.id, "{job}", job, "{auth}", "Host: localhost\r\nAuthorization: "+contractKey)
	seen := map[string]bool{}
	for _, d := range defects() {
		if seen[d.name] {
			t.Errorf("%s is there twice", d.name)
		}
		seen[d.name] = true
		t.Run(d.name, func(t *testing.T) {
			status, err := d.play(t, address, fill.Replace(d.raw))
			if err != nil {
				t.Fatal(err)
			}
			if status < 400 || status > 499 || d.want != 0 && status != d.want {
				t.Errorf("got %d, want %d (0: any 4xx)", status, d.want)
			}
		})
	}
	if len(seen) < 60 {
		t.Errorf("got %d defects, want 60 at least", len(seen))
	}
	p.want(p.do("POST", "/purge-queue", ""), http.StatusOK, "removed", "1") // the good job and no other
}

// play sends raw and reads one answer.
func (d defect) play(t *testing.T, address, raw string) (int, error) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(program.Soon)); err != nil {
		return 0, err
	}
	sent := make(chan struct{})
	go func() { // an answer may come before all is sent
		defer close(sent)
		_, _ = io.WriteString(conn, raw)
		if tcp, ok := conn.(*net.TCPConn); ok && d.cut {
			_ = tcp.CloseWrite()
		}
	}()
	defer func() { _ = conn.Close(); <-sent }()
	method, _, _ := strings.Cut(raw, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if errors.Is(err, io.ErrUnexpectedEOF) && d.silent != "" {
		return http.StatusBadRequest, nil
	}
	if err != nil {
		return 0, fmt.Errorf("no answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("half an answer: %w", err)
	}
	if method == http.MethodHead {
		return resp.StatusCode, nil
	}
	return resp.StatusCode, errorOfOurs(resp.StatusCode, resp.Header, body)
}

func defects() []defect {
	var all []defect
	for _, group := range [][]defect{brokenHTTP(), brokenBodies(), oddPaths(), oddHeaders(), oddQueries(), oddDocuments(), oddControl()} {
		all = append(all, group...)
	}
	return all
}

// get and post are whole requests but for their fault.
func get(path string, headers ...string) string {
	return "GET " + path + " HTTP/1.1\r\n{auth}\r\n" + lines(headers) + "\r\n"
}

func post(path, body string, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\n{auth}\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), lines(headers), body)
}

func lines(headers []string) string {
	if len(headers) == 0 {
		return ""
	}
	return strings.Join(headers, "\r\n") + "\r\n"
}

const okBody = `{"input":{}}`

// brokenHTTP cannot be parsed, or hardly.
func brokenHTTP() []defect {
	return []defect{
		{name: "no HTTP at all", raw: "hello\r\n\r\n", want: 400},
		{name: "binary garbage", raw: "\x00\x01\x02\xff\xfe\r\n\r\n", want: 400},
		{name: "TLS on a plain port", raw: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", want: 400},
		{name: "the preface of HTTP/2", raw: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{name: "a request line without a version", raw: "GET /v2/{ep}/health\r\n\r\n"},
		{name: "a version that does not exist", raw: "GET /v2/{ep}/nothing HTTP/9.9\r\n{auth}\r\n\r\n"},
		{name: "a request line of one word", raw: "GET\r\n{auth}\r\n\r\n", want: 400},
		{name: "an unknown method", raw: "FROB /v2/{ep}/health HTTP/1.1\r\n{auth}\r\n\r\n", want: 405},
		{name: "a method in lower case", raw: "get /v2/{ep}/health HTTP/1.1\r\n{auth}\r\n\r\n", want: 405},
		{name: "CONNECT", raw: "CONNECT example.com:443 HTTP/1.1\r\n{auth}\r\n\r\n"},
		{name: "TRACE", raw: "TRACE /v2/{ep}/health HTTP/1.1\r\n{auth}\r\n\r\n", want: 405},
		{name: "OPTIONS *", raw: "OPTIONS * HTTP/1.1\r\n{auth}\r\n\r\n"},
		{name: "HTTP/1.0 without a host", raw: "GET /v2/{ep}/status/nobody HTTP/1.0\r\nAuthorization: {key}\r\n\r\n", want: 404},
		{name: "HTTP/1.1 without a host", raw: "GET /v2/{ep}/status/nobody HTTP/1.1\r\nAuthorization: {key}\r\n\r\n"},
		{name: "two hosts", raw: "GET /v2/{ep}/status/nobody HTTP/1.1\r\n{auth}\r\nHost: y\r\n\r\n"},
		{name: "a header without a colon", raw: get("/v2/{ep}/status/nobody", "nonsense", "Accept: x")},
		{name: "a last header without a colon", raw: get("/v2/{ep}/status/nobody", "nonsense"), cut: true},
		{name: "a header with a space before its colon", raw: get("/v2/{ep}/status/nobody", "Accept : x")},
		{name: "a header without a name", raw: get("/v2/{ep}/status/nobody", ": x")},
		{name: "NUL in a header", raw: get("/v2/{ep}/status/nobody", "Accept: a\x00b")},
		{name: "a folded header", raw: get("/v2/{ep}/status/nobody", "Accept: a", "  b")},
		{name: "lines that end in LF only", raw: "GET /v2/{ep}/status/nobody HTTP/1.1\nHost: localhost\nAuthorization: {key}\n\n", want: 400},
		{name: "a header of 70 KB", raw: get("/v2/{ep}/status/nobody", "X-Large: "+strings.Repeat("x", 70<<10)), want: 400},
		{name: "5000 headers", raw: get("/v2/{ep}/status/nobody", strings.Repeat("X-Many: 0123456789\r\n", 5000)+"X-Last: 1"), want: 400},
		{name: "a path of 100 KB", raw: get("/v2/{ep}/status/" + strings.Repeat("x", 100<<10)), want: 400},
		{name: "a key of 60 KB", raw: "GET /v2/{ep}/health HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + strings.Repeat("k", 60<<10) + "\r\n\r\n", want: 401},
		{name: "cut within the headers", raw: "GET /v2/{ep}/health HTTP/1.1\r\nHost: localhost\r\nAuth", cut: true},
	}
}

// brokenBodies are framed wrong.
func brokenBodies() []defect {
	run := func(headers ...string) string {
		return "POST /v2/{ep}/run HTTP/1.1\r\n{auth}\r\n" + lines(headers) + "\r\n"
	}
	chunked := func(body string) string { return run("Transfer-Encoding: chunked") + body }
	return []defect{
		{name: "a negative length", raw: run("Content-Length: -1") + okBody, want: 400},
		{name: "a length that is a word", raw: run("Content-Length: many") + okBody, want: 400},
		{name: "a length that is a list", raw: run("Content-Length: 12, 12") + okBody, want: 400},
		{name: "a length beyond 64 bits", raw: run("Content-Length: 99999999999999999999") + okBody, want: 400},
		{name: "two lengths that differ", raw: run("Content-Length: 12", "Content-Length: 5") + okBody},
		{name: "an empty length", raw: run("Content-Length: ") + okBody, want: 400},
		{name: "a length of 1 TB", raw: run("Content-Length: 1099511627776") + okBody, want: 413},
		{name: "no length and no body", raw: run(), want: 400},
		{name: "a body shorter than its length", raw: run("Content-Length: 100") + okBody, cut: true},
		{name: "a chunk with a bad size", raw: chunked("zz\r\n" + okBody + "\r\n0\r\n\r\n"), want: 400},
		{name: "a chunk with a negative size", raw: chunked("-5\r\n" + okBody + "\r\n0\r\n\r\n"), want: 400},
		{name: "a chunk of 2^63 bytes", raw: chunked("7fffffffffffffff\r\n" + okBody)},
		{name: "a chunk of 2^64 bytes", raw: chunked("ffffffffffffffff\r\n" + okBody)},
		{name: "a chunk without its end", raw: chunked("c\r\n" + okBody + "0\r\n\r\n"), want: 400},
		{name: "chunks that are cut", raw: chunked("c\r\n" + okBody + "\r\n"), cut: true, silent: "to the HTTP library, an end between two chunks is a client that left"},
		{name: "chunks over the limit", raw: chunked(strings.Repeat("100000\r\n"+strings.Repeat(" ", 1<<20)+"\r\n", 22) + "0\r\n\r\n"), want: 413},
		{name: "an unknown transfer encoding", raw: run("Transfer-Encoding: gzip", "Content-Length: 1") + "x", want: 400},
		{name: "a transfer encoding of nonsense", raw: run("Transfer-Encoding: chunked-ish", "Content-Length: 1") + "x", want: 400},
		{name: "chunks that are gzip", raw: run("Transfer-Encoding: chunked", "Content-Encoding: gzip") + "1\r\nx\r\n0\r\n\r\n", want: 400},
		{name: "a gzip body", raw: post("/v2/{ep}/run", "\x1f\x8b\x08\x00", "Content-Encoding: gzip"), want: 400},
		{name: "a br body", raw: post("/v2/{ep}/run", "x", "Content-Encoding: br"), want: 400},
		{name: "encodings in a row", raw: post("/v2/{ep}/run", "x", "Content-Encoding: gzip, identity"), want: 400},
		{name: "an expectation nobody knows", raw: post("/v2/{ep}/run", "{}", "Expect: the-spanish-inquisition"), want: 400},
		{name: "a body where none is read, too large", raw: post("/v2/{ep}/cancel/{job}", strings.Repeat(" ", 65<<10)), want: 413},
		{name: "a GET with a large body", raw: "GET /v2/{ep}/health HTTP/1.1\r\n{auth}\r\nContent-Length: 70000\r\n\r\n" + strings.Repeat(" ", 70000), want: 413},
	}
}

// oddPaths lead nowhere.
func oddPaths() []defect {
	status := func(id string) string { return get("/v2/{ep}/status/" + id) }
	return []defect{
		{name: "bad percent-encoding", raw: status("%zz")},
		{name: "half a percent-encoding", raw: status("%4")},
		{name: "NUL in the path", raw: status("a\x00b")},
		{name: "encoded NUL in the path", raw: status("a%00b"), want: 404},
		{name: "an encoded line end in the path", raw: status("a%0d%0ab"), want: 404},
		{name: "a tab in the path", raw: status("a\tb")},
		{name: "encoded dots", raw: status("%2e%2e"), want: 404},
		{name: "encoded slashes", raw: status("..%2f..%2fhealth"), want: 404},
		{name: "dots beyond the root", raw: get("/v2/{ep}/status/../../../../etc/passwd"), want: 404},
		{name: "a backslash", raw: status(`a\b`), want: 404},
		{name: "a semicolon", raw: status("a;b"), want: 404},
		{name: "bytes that are no UTF-8", raw: status("%ff%fe"), want: 404},
		{name: "an emoji", raw: status("%F0%9F%98%80"), want: 404},
		{name: "an id of 10 KB", raw: status(strings.Repeat("x", 10<<10)), want: 404},
		{name: "an id of a subject's wildcard", raw: post("/v2/{ep}/cancel/%3E", ""), want: 404},
		{name: "an endpoint of 65 characters", raw: get("/v2/" + strings.Repeat("x", 65) + "/health"), want: 404},
		{name: "an endpoint that is encoded dots", raw: get("/v2/%2e%2e/health"), want: 404},
		{name: "an empty endpoint", raw: get("/v2//health"), want: 404},
		{name: "an empty id", raw: get("/v2/{ep}/status/"), want: 404},
		{name: "an operation in capitals", raw: post("/v2/{ep}/RUN", okBody), want: 404},
		{name: "something after the operation", raw: post("/v2/{ep}/run/x", okBody), want: 404},
		{name: "a query without a path", raw: "GET ?x HTTP/1.1\r\n{auth}\r\n\r\n"},
		{name: "a path without its slash", raw: "GET v2/{ep}/status/nobody HTTP/1.1\r\n{auth}\r\n\r\n"},
		{name: "the address of another host", raw: "GET http://elsewhere/v2/{ep}/status/nobody HTTP/1.1\r\n{auth}\r\n\r\n", want: 400},
		{name: "HEAD of a submission", raw: "HEAD /v2/{ep}/run HTTP/1.1\r\n{auth}\r\n\r\n", want: 405},
		{name: "PUT of a job", raw: "PUT /v2/{ep}/status/{job} HTTP/1.1\r\n{auth}\r\nContent-Length: 0\r\n\r\n", want: 405},
		{name: "GET of a cancellation", raw: get("/v2/{ep}/cancel/{job}"), want: 405},
		{name: "POST of a list", raw: post("/v2/{ep}/requests", "{}"), want: 405},
		{name: "DELETE of a stream", raw: "DELETE /v2/{ep}/stream/{job} HTTP/1.1\r\n{auth}\r\n\r\n", want: 405},
	}
}

// oddHeaders are well-formed and wrong.
func oddHeaders() []defect {
	keyed := func(key string) string { return post("/v2/{ep}/run", okBody, "Idempotency-Key: "+key) }
	auth := func(value string) string {
		return "GET /v2/{ep}/health HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + value + "\r\n\r\n"
	}
	return []defect{
		{name: "an empty idempotency key", raw: keyed(""), want: 400},
		{name: "an idempotency key of 256 bytes", raw: keyed(strings.Repeat("k", 256)), want: 400},
		{name: "an idempotency key with a space", raw: keyed("a b"), want: 400},
		{name: "an idempotency key beyond ASCII", raw: keyed("clé"), want: 400},
		{name: "an idempotency key with a tab", raw: keyed("a\tb"), want: 400},
		{name: "an idempotency key with DEL", raw: keyed("a\x7fb"), want: 400},
		{name: "no key but its scheme", raw: auth("Bearer"), want: 401},
		{name: "a key of spaces", raw: auth("Bearer     "), want: 401},
		{name: "a key beyond ASCII", raw: auth("Bearer clé\xff"), want: 401},
		{name: "the key twice", raw: auth("Bearer {key}, Bearer {key}"), want: 401},
		{name: "the scheme twice", raw: auth("Bearer Bearer {key}"), want: 401},
		{name: "a key in the query", raw: "GET /v2/{ep}/health?api_key={key} HTTP/1.1\r\nHost: localhost\r\n\r\n", want: 401},
		{name: "a last event id that is a word", raw: get("/v2/{ep}/stream/{job}", "Accept: text/event-stream", "Last-Event-ID: x"), want: 400},
		{name: "a last event id that is negative", raw: get("/v2/{ep}/stream/{job}", "Accept: text/event-stream", "Last-Event-ID: -1"), want: 400},
	}
}

// oddQueries are parameters out of their bounds.
func oddQueries() []defect {
	var all []defect
	for _, q := range []struct{ name, path string }{
		{"wait in other digits", "/status-sync/{job}?wait=%EF%BC%91%EF%BC%90%EF%BC%90%EF%BC%90"},
		{"wait with an exponent", "/status-sync/{job}?wait=1e3"},
		{"wait in hex", "/status-sync/{job}?wait=0x3e8"},
		{"wait with underscores", "/status-sync/{job}?wait=1_000"},
		{"wait with a space", "/status-sync/{job}?wait=+1000"},
		{"wait with NUL", "/status-sync/{job}?wait=1000%00"},
		{"wait that is badly encoded", "/status-sync/{job}?wait=%zz"},
		{"wait without a value", "/status-sync/{job}?wait"},
		{"wait that is a list", "/status-sync/{job}?wait=1000,2000"},
		{"wait of a stream too short", "/stream/{job}?wait=999"},
		{"wait of a stream too long", "/stream/{job}?wait=300001"},
		{"wait that is a word", "/status-sync/{job}?wait=x"},
		{"ttl too short", "/status/{job}?ttl=1"},
		{"ttl with NUL", "/status/{job}?ttl=60000%00"},
		{"ttl without a value", "/status/{job}?ttl"},
		{"ttl beyond 64 bits", "/status/{job}?ttl=99999999999999999999"},
		{"format that does not exist", "/stream/{job}?format=xml"},
		{"format in capitals", "/stream/{job}?format=SSE"},
		{"cursor that is negative", "/stream/{job}?cursor=-1"},
		{"cursor that is a word", "/stream/{job}?cursor=x"},
		{"cursor that is empty", "/stream/{job}?cursor="},
		{"cursor beyond 64 bits", "/stream/{job}?cursor=99999999999999999999"},
		{"limit of none", "/requests?limit=0"},
		{"limit too large", "/requests?limit=101"},
		{"limit that is negative", "/requests?limit=-1"},
		{"limit that is a word", "/requests?limit=ten"},
		{"limit that is empty", "/requests?limit="},
		{"status that does not exist", "/requests?status=RUNNING"},
		{"status in lower case", "/requests?status=completed"},
		{"status with a hole", "/requests?status=FAILED,,COMPLETED"},
		{"a page that nobody made", "/requests?cursor=AAAA"},
		{"a page that is no base64", "/requests?cursor=%25%25%25"},
		{"a page that is empty", "/requests?cursor="},
	} {
		all = append(all, defect{name: q.name, raw: get("/v2/{ep}" + q.path), want: 400})
	}
	return all
}

// oddDocuments are bodies that are no submission, beyond those of the API's
// own tests.
func oddDocuments() []defect {
	var all []defect
	for name, body := range map[string]string{
		"a byte order mark":            "\xef\xbb\xbf" + okBody,
		"UTF-16":                       "\xff\xfe{\x00}\x00",
		"a NUL after it":               okBody + "\x00",
		"a comment in it":              `{"input":{} /* x */}`,
		"NaN":                          `{"input":{"x":NaN}}`,
		"a number with a leading zero": `{"input":{"x":01}}`,
		"a plus sign":                  `{"input":{"x":+1}}`,
		"half an escape":               `{"input":{"x":"\u12"}}`,
		"arrays 100000 deep":           `{"input":{"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}}`,
		"objects 100000 deep":          `{"input":` + strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat("}", 101_000) + `}`,
		"1 MB of spaces":               strings.Repeat(" ", 1<<20),
		"a form of parts":              "--x\r\nContent-Disposition: form-data; name=\"input\"\r\n\r\n{}\r\n--x--\r\n",
		"XML":                          "<input/>",
		"a key without quotes":         `{input:{}}`,
		"input in capitals":            `{"INPUT":{}}`,
		"two documents on two lines":   okBody + "\n" + okBody,
		"a webhook with a line end":    `{"input":{},"webhook":"http://x/\n"}`,
		"a webhook without a host":     `{"input":{},"webhook":"https://:80/"}`,
		"an infinite ttl":              `{"input":{},"policy":{"ttl":1e999}}`,
	} {
		all = append(all, defect{name: "body: " + name, raw: post("/v2/{ep}/run", body), want: 400})
	}
	return all
}

// oddControl is /v1 with what it does not take.
func oddControl() []defect {
	var all []defect
	for name, body := range map[string]string{
		"an endpoint with a slash":            `{"id":"a/b"}`,
		"an endpoint with a dot":              `{"id":"a.b"}`,
		"an endpoint of 65 characters":        `{"id":"` + strings.Repeat("x", 65) + `"}`,
		"an endpoint that is a reserved word": `{"id":"drain"}`,
		"limits of an unknown operation":      `{"id":"odd","limits":{"walk":{"requests":1}}}`,
		"limits that are negative":            `{"id":"odd","limits":{"run":{"requests":-1}}}`,
		"limits that are a list":              `{"id":"odd","limits":[]}`,
		"a stream format that does not exist": `{"id":"odd","streamFormat":"xml"}`,
		"a duration that is a fraction":       `{"id":"odd","ttlMs":10000.5}`,
		"a duration beyond 64 bits":           `{"id":"odd","ttlMs":1e40}`,
	} {
		all = append(all, defect{name: "control: " + name, raw: post("/v1/endpoints", body), want: 400})
	}
	return append(all,
		defect{name: "control: a body over 1 MB", raw: post("/v1/endpoints", strings.Repeat(" ", 1<<20+1)), want: 413},
		defect{name: "control: a scope that does not exist", raw: post("/v1/keys", `{"scopes":["write:x"]}`), want: 400},
		defect{name: "control: no scopes", raw: post("/v1/keys", `{}`), want: 400},
		defect{name: "control: a key's name too long", raw: post("/v1/keys", `{"name":"`+strings.Repeat("x", 200)+`","scopes":["control"]}`), want: 400},
		defect{name: "control: force that is no truth", raw: "DELETE /v1/endpoints/{ep}?force=maybe HTTP/1.1\r\n{auth}\r\n\r\n"},
		defect{name: "control: an encoded slash in the id", raw: get("/v1/endpoints/a%2Fb"), want: 404},
	)
}
