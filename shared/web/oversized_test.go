package web_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/bus"
	"flightline/shared/web"
)

func TestABodyThatIsNotReadMayBeAnswered(t *testing.T) {
	app := web.New(web.Config{BodyLimit: 1 << 20, Oversized: func(c *fiber.Ctx) bool {
		return c.Path() == "/mine" && c.JSON(fiber.Map{"bytes": c.Request().Header.ContentLength()}) == nil
	}})
	app.Post("/*", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{"read": len(c.Body())}) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := web.Serve(ctx, app, listener); err != nil {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer stop()
	defer http.DefaultClient.CloseIdleConnections()
	large := strings.Repeat("x", 3<<20)
	for name, tc := range map[string]struct {
		path, key string
		body      io.Reader
		want      string
	}{
		"answered":              {"/mine", "k", strings.NewReader(large), `200 {"bytes":3145728}`},
		"doubled slashes":       {"//mine", "k", strings.NewReader(large), `200 {"bytes":3145728}`},
		"of unknown size":       {"/mine", "k", io.MultiReader(strings.NewReader(large)), `200 {"bytes":-1}`},
		"left to the app":       {"/other", "k", strings.NewReader(large), `413`},
		"without a key":         {"/mine", "", strings.NewReader(large), `401`},
		"small enough, so read": {"/mine", "k", strings.NewReader("xyz"), `200 {"read":3}`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listener.Addr().String()+tc.path, tc.body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", tc.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if got := resp.Status[:3] + " " + string(text); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// 408 is for clients that send too slowly. Here the look-up of the key took too long.
func TestALargeBodyWhoseKeyCannotBeLookedUpIsA503(t *testing.T) {
	t.Parallel()
	app := web.New(web.Config{BodyLimit: 1 << 20, BodyMemory: 1 << 20, Known: func(*fiber.Ctx) error {
		return fmt.Errorf("%w: %w", bus.ErrUnavailable, context.DeadlineExceeded)
	}})
	addr := serve(t, app)
	for name, head := range map[string]string{
		"announced":                 "Content-Length: 1000000\r\n\r\nx",
		"expects to be asked first": "Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n",
		"chunked":                   "Transfer-Encoding: chunked\r\n\r\n20000\r\n" + strings.Repeat("x", 0x20000),
	} {
		conn := connect(t, addr, "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: x\r\n"+head)
		if status, body := answered(t, conn); status != 503 || body["code"] != "unavailable" {
			t.Errorf("%s: got %d %v, want 503", name, status, body)
		}
	}
}
