package web_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/tlsconfig"
	"flightline/shared/tlsconfig/certstest"
	"flightline/shared/web"
)

// serveTLS serves the app over TLS, and returns its address and what a client
// needs.
func serveTLS(t *testing.T, app *fiber.App) (address string, client *tls.Config) {
	t.Helper()
	a := certstest.New(t)
	cert, key := a.Issue("server")
	shown, err := tlsconfig.Open(tlsconfig.Files{Cert: cert, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err = tlsconfig.Client{CA: a.CA()}.Config()
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, app, func(l net.Listener) net.Listener { return tls.NewListener(l, shown.Config()) }), client
}

// Over TLS what a client that leaves sends last is unread in the socket, so
// its end must be seen behind that.
func TestLongPollOverTLSEndsWhenTheClientLeaves(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*tls.Conn) error{
		"closed":               func(c *tls.Conn) error { return c.Close() },
		"gone without a word":  func(c *tls.Conn) error { return c.NetConn().Close() },
		"after it sent more":   func(c *tls.Conn) error { _, err := io.WriteString(c, "GET"); return errors.Join(err, c.Close()) },
		"with TLS 1.2, closed": func(c *tls.Conn) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app, held, why := holder(time.Minute)
			address, config := serveTLS(t, app)
			if strings.Contains(name, "1.2") {
				config.MaxVersion = tls.VersionTLS12
			}
			conn := dialTLS(t, address, config)
			checkGone(t, held, why, func() error { return leave(conn) })
		})
	}
}

func TestLongPollOverTLSSurvivesAClientThatWaits(t *testing.T) {
	t.Parallel()
	app, held, why := holder(2500 * time.Millisecond)
	address, config := serveTLS(t, app)
	conn := dialTLS(t, address, config)
	receive(t, held, patience)
	res, err := io.ReadAll(io.LimitReader(conn, 15))
	if err != nil || string(res) != "HTTP/1.1 200 OK" {
		t.Errorf("got %q, %v, want an answer", res, err)
	}
	if got := receive(t, why, patience); !errors.Is(got, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", got)
	}
}

func dialTLS(t *testing.T, address string, config *tls.Config) *tls.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A streamed answer reaches its end, and is cut off, over TLS as well.
func TestStreamOverTLS(t *testing.T) {
	app := web.New(web.Config{})
	ended := make(chan struct{}, 2)
	app.Get("/:pieces", func(c *fiber.Ctx) error {
		left, err := c.ParamsInt("pieces")
		web.Stream(c, func() ([]byte, error) {
			if left--; left < 0 {
				return nil, io.EOF
			}
			return []byte(strings.Repeat("x", 100_000)), nil
		}, func() { ended <- struct{}{} })
		return err
	})
	address, config := serveTLS(t, app)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	res, err := client.Get("https://" + address + "/3")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); n != 300_000 || err != nil {
		t.Errorf("got %d bytes, %v, want 300000", n, err)
	}
	receive(t, ended, patience)
	res, err = client.Get("https://" + address + "/1000000")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // before its end
	receive(t, ended, patience)
}

func TestAnAddressThatSpeaksTLSTellsPlainHTTPSo(t *testing.T) {
	address, _ := serveTLS(t, web.New(web.Config{}))
	for request, want := range map[string]string{
		"POST /v2/ep/run HTTP/1.1\r\nHost: x\r\n\r\n": `this address speaks https`,
		"\x00\x00\x00\x00\x00\x00":                    "",
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, request)
		_ = conn.SetDeadline(time.Now().Add(patience))
		got, _ := io.ReadAll(conn) // it may end by a reset
		if want == "" && strings.Contains(string(got), "HTTP") || !strings.Contains(string(got), want) {
			t.Errorf("%q: got %q, want %q", request, got, want)
		}
		_ = conn.Close()
	}
}
