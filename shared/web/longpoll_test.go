package web_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/testenv"
	"flightline/shared/web"
)

// holder is an app whose handler holds its answer and then says why it ended.
func holder(wait time.Duration) (app *fiber.App, held chan struct{}, why chan error) {
	app = web.New(web.Config{})
	held, why = make(chan struct{}, 1), make(chan error, 1)
	app.Get("/", func(c *fiber.Ctx) error {
		ctx, release := web.LongPoll(c, wait)
		defer release()
		held <- struct{}{}
		<-ctx.Done()
		why <- context.Cause(ctx)
		return c.JSON(fiber.Map{})
	})
	return app, held, why
}

// checkGone has a client leave while its answer is held.
func checkGone(t *testing.T, held <-chan struct{}, why <-chan error, leave func() error) {
	t.Helper()
	receive(t, held, patience)
	if err := leave(); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, why, patience); !errors.Is(got, web.ErrGone) {
		t.Errorf("got %v, want ErrGone", got)
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn
}

func receive[T any](t *testing.T, from <-chan T, within time.Duration) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(within):
		t.Fatalf("nothing within %s", within)
		panic("unreachable")
	}
}

func TestLongPollEndsAfterItsWait(t *testing.T) {
	t.Parallel()
	app, held, why := holder(50 * time.Millisecond)
	dial(t, serve(t, app))
	receive(t, held, patience)
	if got := receive(t, why, patience); !errors.Is(got, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", got)
	}
}

func TestLongPollEndsWhenTheClientLeaves(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*net.TCPConn) error{
		"closed": func(c *net.TCPConn) error { return c.Close() },
		"reset": func(c *net.TCPConn) error {
			if err := c.SetLinger(0); err != nil {
				return err
			}
			return c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app, held, why := holder(time.Minute)
			conn, ok := dial(t, serve(t, app)).(*net.TCPConn)
			if !ok {
				t.Fatal("no TCP")
			}
			checkGone(t, held, why, func() error { return leave(conn) })
		})
	}
}

func TestLongPollSurvivesAClientThatWaitsOrSendsMore(t *testing.T) {
	t.Parallel()
	app, held, why := holder(1500 * time.Millisecond)
	conn := dial(t, serve(t, app))
	receive(t, held, patience)
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil { // pipelined
		t.Fatal(err)
	}
	if got := receive(t, why, patience); !errors.Is(got, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", got)
	}
	receive(t, held, patience)
}

func TestServeLetsHeldAnswersGoAndReturns(t *testing.T) {
	app, held, why := holder(time.Hour)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, app, listener) }()
	conn := dial(t, listener.Addr().String())
	receive(t, held, patience)
	stop()
	if got := receive(t, why, patience); !errors.Is(got, web.ErrStopping) {
		t.Errorf("got %v, want ErrStopping", got)
	}
	if err := receive(t, served, patience); err != nil {
		t.Errorf("serve: got %v, want nil", err)
	}
	if got, err := io.ReadAll(conn); err != nil || len(got) == 0 {
		t.Errorf("the held request got %q, %v, want its answer", got, err)
	}
}

func TestServeEndsAtOnceIfItsContextHasEnded(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	served := make(chan error, 1)
	app := web.New(web.Config{})
	go func() { served <- web.Serve(ctx, app, listener) }()
	if err := receive(t, served, patience); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if conn, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

// An HTTP client may open a connection ahead and use it for nothing.
func TestServeDoesNotWaitForAConnectionThatSentNothing(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	app := web.New(web.Config{})
	go func() { served <- web.Serve(ctx, app, listener) }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	testenv.Eventually(t, "the connection is open", func() bool { return app.Server().GetOpenConnectionsCount() == 1 })
	stop()
	if err := receive(t, served, patience); err != nil {
		t.Errorf("serve: got %v, want nil", err)
	}
}

func TestServeTellsOfABrokenListener(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(t.Context(), web.New(web.Config{}), listener) }()
	_ = listener.Close()
	if err := receive(t, served, patience); err == nil {
		t.Error("got nil, want an error")
	}
}
