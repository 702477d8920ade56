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

	"flightline/e2e/site"
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
	s := site.New(t)
	url := s.Start("dev", "--no-demo", "--api-key", contractKey, "--limits", "off").Line(site.Ready)
	w := newWorld(t, contractKey, url, url)
	p := w.place(t, "")
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
	if err := conn.SetDeadline(time.Now().Add(site.Soon)); err != nil {
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
