package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"flightline/shared/web"
)

func TestRoutingErrorsAreJSON(t *testing.T) {
	app := web.New(web.Config{})
	app.Post("/thing/:id", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{}) })
	base := "http://" + serve(t, app)
	tests := map[string]struct {
		method, path string
		code         web.Code
	}{
		"no route":       {"GET", "/nowhere", web.RouteNotFound},
		"markup":         {"GET", "/<script>", web.RouteNotFound},
		"wrong method":   {"GET", "/thing/1", web.MethodNotAllowed},
		"no such method": {"BREW", "/thing/1", web.MethodNotAllowed},
		"neither":        {"BREW", "/nowhere", web.RouteNotFound},
		"case matters":   {"POST", "/Thing/1", web.RouteNotFound},
	}
	for name, tc := range tests {
		got := do(t, request(t, tc.method, base+tc.path, nil))
		if got.status != tc.code.Status() || got.body["code"] != string(tc.code) {
			t.Errorf("%s: got %d %v, want %s", name, got.status, got.body, tc.code)
		}
		if allow := got.header.Get("Allow"); (tc.code == web.MethodNotAllowed) != (allow == "POST") {
			t.Errorf("%s: got Allow %q, want POST with a 405 only", name, allow)
		}
	}
	v1 := do(t, request(t, "GET", base+"/v1/nowhere", nil))
	if v1.body["message"] != v1.body["error"] || v1.body["message"] == nil {
		t.Errorf("beneath /v1: got %v, want message as well", v1.body)
	}
}

func TestWhatIsNoHTTPGetsJSON(t *testing.T) {
	addr := serve(t, web.New(web.Config{}))
	for name, raw := range map[string]string{
		"garbage":     "\x16\x03\x01hello\r\n\r\n",
		"big headers": "GET / HTTP/1.1\r\nHost: x\r\nX-Big: " + strings.Repeat("x", 100<<10) + "\r\n\r\n",
		"bad length":  "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, raw); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if len(got) == 0 {
			t.Errorf("%s: no answer: %v", name, err)
		}
		_, body, _ := bytes.Cut(got, []byte("\r\n\r\n"))
		var decoded map[string]any
		if json.Unmarshal(body, &decoded) != nil || decoded["code"] != string(web.InvalidRequest) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestRequestIDIsOurs(t *testing.T) {
	app := web.New(web.Config{})
	app.Get("/", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{"id": web.RequestID(c)}) })
	base := "http://" + serve(t, app)
	req := request(t, "GET", base, nil)
	req.Header.Set("X-Request-ID", "theirs")
	first, second := do(t, req), do(t, req)
	id, err := uuid.Parse(first.header.Get("X-Request-ID"))
	if err != nil || id.Version() != 7 || first.body["id"] != id.String() {
		t.Errorf("got header %q and body %v, want one UUID of version 7", first.header.Get("X-Request-ID"), first.body)
	}
	if second.body["id"] == first.body["id"] {
		t.Error("two requests share an id")
	}
}

func TestPanicIs500AndItsStackIsInTheLogOnly(t *testing.T) {
	var out bytes.Buffer
	app := web.New(web.Config{Log: slog.New(slog.NewJSONHandler(&out, nil))})
	app.Get("/", func(*fiber.Ctx) error { panic("swordfish") })
	got := do(t, request(t, "GET", "http://"+serve(t, app), nil))
	if got.status != 500 || got.body["code"] != string(web.Internal) || strings.Contains(fmt.Sprint(got.body), "swordfish") {
		t.Errorf("got %d %v", got.status, got.body)
	}
	logged := out.String()
	id, _ := got.body["requestId"].(string)
	for _, want := range []string{"swordfish", "app_test.go", id} {
		if !strings.Contains(logged, want) {
			t.Errorf("%q is not in the log: %s", want, logged)
		}
	}
}

func TestAPathIsWhatWasMeant(t *testing.T) {
	app := web.New(web.Config{})
	app.Post("/v2/:endpoint/run", func(c *fiber.Ctx) error {
		return c.JSON(fiber.Map{"endpoint": c.Params("endpoint"), "q": c.Query("q")})
	})
	base := "http://" + serve(t, app)
	for path, endpoint := range map[string]string{
		"/v2/ep/run": "ep", "//v2/ep/run": "ep", "/v2//ep///run": "ep", "///v2//ep/run/": "ep",
		"/v2/%65p/run": "ep", "/%762//e%70/r%75n": "ep", "/v2/%61%2D%5f%2e%7E%39%5A/run": "a-_.~9Z",
		"/v2/a%2Fb/run": "a%2Fb", "/v2/a%2565/run": "a%2565", "/v2/a%20/run": "a%20", "/v2/%C3%A4/run": "%C3%A4",
	} {
		got := do(t, request(t, "POST", base+path+"?q=a//b%2Fc", nil))
		if diff := cmp.Diff(map[string]any{"endpoint": endpoint, "q": "a//b/c"}, got.body); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

func TestBodiesOverTheLimitGetAnAnswerNotAReset(t *testing.T) {
	const limit = 1 << 20
	app := web.New(web.Config{BodyLimit: 2 * limit})
	app.Post("/", web.MaxBody(limit), func(c *fiber.Ctx) error { return c.JSON(fiber.Map{"size": len(c.Body())}) })
	base := "http://" + serve(t, app)
	for size, want := range map[int]int{0: 200, limit - 1: 200, limit: 200, limit + 1: 413, 2*limit + 1: 413, 40 * limit: 413} {
		body := bytes.Repeat([]byte("x"), size)
		for name, reader := range map[string]io.Reader{"length": bytes.NewReader(body), "chunked": io.MultiReader(bytes.NewReader(body))} {
			req := request(t, "POST", base, reader)
			req.Header.Set("Authorization", "key")
			got := do(t, req)
			if got.status != want {
				t.Errorf("%d bytes, %s: got %d %v, want %d", size, name, got.status, got.body, want)
			}
			if text, _ := got.body["error"].(string); want == 413 && (got.body["code"] != string(web.BodyTooLarge) || !strings.Contains(text, "bytes")) {
				t.Errorf("%d bytes, %s: got %v, want the bound", size, name, got.body)
			}
		}
	}
	zipped := request(t, "POST", base, strings.NewReader("x"))
	zipped.Header.Set("Content-Encoding", "gzip")
	if got := do(t, zipped); got.status != 400 || got.body["error"] != `Content-Encoding is not supported, got "gzip"; send the body as it is` {
		t.Errorf("an encoded body: got %d %v, want 400 with the encoding", got.status, got.body)
	}
	form := request(t, "POST", base, strings.NewReader("{}"))
	form.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	if got := do(t, form); got.body["size"] != 2.0 {
		t.Errorf("a form's content type: got %v, want the body as it is", got.body)
	}
}
