package security

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/e2e/proxy"
	"flightline/shared/testenv/program"
	"flightline/shared/web/framingtest"
)

const proxiedHost = "flightline.example"

// A dev behind the proxies of docs/proxy serves as it does without, and a request
// that proxy and dev might frame in other ways is never answered to another client.
func TestBehindAProxy(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"nginx": "nginx.conf", "haproxy": "haproxy.cfg"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := program.New(t)
			s.Environ = append(s.Environ, "FLIGHTLINE_API_KEY="+adminKey, "FLIGHTLINE_METRICS_LISTEN=127.0.0.1:0")
			url := s.Start("dev", "--no-demo", "--host", proxiedHost, "--max-connections-per-address", "500").Line(program.Ready)
			s.Environ = append(s.Environ, "FLIGHTLINE_URL="+url)
			s.OK("endpoint", "create", "echo")
			s.Start("worker", "echo", "--", "cat").Line(program.WorkerReady)
			backend := strings.TrimPrefix(url, "http://")
			p := &proxied{Env: s, address: proxy.Start(t, name, file, "127.0.0.1:8080", backend)}
			p.serves()
			p.streams()
			p.keepsRequestsApart()
			(&proxied{Env: s, address: proxy.Start(t, name, file, "127.0.0.1:8080", backend, "310s", "1s")}).waits()
		})
	}
}

// proxied is a dev behind a proxy.
type proxied struct {
	*program.Env
	address string
}

// ask sends a request for the host and returns the answer, whose body the caller closes.
func (p *proxied) ask(ctx context.Context, method, path, host, body string) *http.Response {
	p.T.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.address+path, strings.NewReader(body))
	if err != nil {
		p.T.Fatal(err)
	}
	req.Host = host
	req.Header.Set("Authorization", adminKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.T.Fatal(err)
	}
	return resp
}

// answer is ask with the whole answer.
func (p *proxied) answer(method, path, host, body string) (status int, text string) {
	p.T.Helper()
	resp := p.ask(p.T.Context(), method, path, host, body)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		p.T.Errorf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(raw)
}

// serves has jobs run, small and large, by the name that is allowed only.
func (p *proxied) serves() {
	p.T.Helper()
	for _, size := range []int{10, 9_900_000} {
		status, text := p.answer(http.MethodPost, "/v2/echo/runsync", proxiedHost, string(input(size)))
		if status != http.StatusOK || len(text) < size || !strings.Contains(text, `"COMPLETED"`) {
			p.T.Errorf("a job of %d bytes: got %d and %d bytes, %.200s", size, status, len(text), text)
		}
	}
	if status, text := p.answer(http.MethodGet, "/healthz", "evil.example", ""); status != http.StatusBadRequest {
		p.T.Errorf("another host: got %d %s, want 400", status, text)
	}
	if status, _ := p.answer(http.MethodPost, "/v2/echo/run", proxiedHost, string(input(11_000_000))); status != http.StatusRequestEntityTooLarge {
		p.T.Errorf("a body of 11 MB for /run: got %d, want 413", status)
	}
}

// streams has an event arrive while the answer goes on.
func (p *proxied) streams() {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.T.Context(), program.Soon)
	defer cancel()
	resp := p.ask(ctx, http.MethodGet, "/v2/echo/events", proxiedHost, "")
	defer resp.Body.Close()
	if status, text := p.answer(http.MethodPost, "/v2/echo/run", proxiedHost, string(input(1))); status != http.StatusOK {
		p.T.Errorf("a job: got %d %s, want 200", status, text)
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data:") {
			return
		}
	}
	p.T.Errorf("no event arrived: %v", ctx.Err())
}

// waits has a job of the OpenAI route take longer than the proxy waits for other answers: were
// its client cut off, the job would be cancelled.
func (p *proxied) waits() {
	p.T.Helper()
	p.OK("endpoint", "create", "slow")
	p.Start("worker", "slow", "--", "sh", "-c", `sleep 3; echo '{"choices":[]}'`).Line(program.WorkerReady)
	if status, text := p.answer(http.MethodPost, "/v2/slow/openai/v1/chat/completions", proxiedHost, `{}`); status != http.StatusOK || !strings.Contains(text, "choices") {
		p.T.Errorf("a slow job of the OpenAI route: got %d %s, want its output", status, text)
	}
	if status, text := p.answer(http.MethodPost, "/v2/slow/runsync", proxiedHost, string(input(1))); status != http.StatusGatewayTimeout {
		p.T.Errorf("a slow job of another route: got %d %s, want the 504 of this proxy", status, text)
	}
}

// keepsRequestsApart sends what may be framed in other ways, and looks whether the
// connections that the proxy shares answer others with something else afterwards.
func (p *proxied) keepsRequestsApart() {
	p.T.Helper()
	address := p.address
	for name, tc := range framingtest.Good() {
		if strings.Contains(tc.Sent, "HTTP/1.0") {
			continue // the proxy may end such a connection
		}
		if answers := exchange(p.T, address, tc.Sent); answers != 2 {
			p.T.Errorf("%s: got %d answers, want 2", name, answers)
		}
	}
	cases := framingtest.Good()
	maps.Copy(cases, framingtest.Bad())
	for name, tc := range cases {
		if answers := exchange(p.T, address, tc.Sent); answers > 2 {
			p.T.Errorf("%s: got %d answers to two requests", name, answers)
		}
		for range 3 {
			if status, text := p.answer(http.MethodGet, "/healthz", proxiedHost, ""); status != http.StatusOK {
				p.T.Errorf("%s: another client got %d %s, want its own 200", name, status, text)
			}
		}
	}
}

// exchange sends the bytes and counts the answers until the connection ends.
func exchange(t *testing.T, address, sent string) (answers int) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The last request, which asks for the end of the connection.
	last := strings.TrimSuffix(framingtest.Next, "\r\n") + "Connection: close\r\n\r\n"
	if _, err := io.WriteString(conn, strings.TrimSuffix(sent, framingtest.Next)+last); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil { // what is not whole gets no answer soon
		t.Fatal(err)
	}
	for in := bufio.NewReader(conn); ; answers++ {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return answers
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}
