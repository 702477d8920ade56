package web_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/web"
)

// streamer is an app that answers with the pieces that come, and with the error.
func streamer(pieces <-chan string, failure error) (app *fiber.App, ended chan struct{}) {
	app = web.New(web.Config{})
	ended = make(chan struct{}, 1)
	app.Get("/", func(c *fiber.Ctx) error {
		held, release := web.LongPoll(c, time.Hour)
		web.Stream(c, func() ([]byte, error) {
			select {
			case piece, more := <-pieces:
				if !more {
					return nil, failure
				}
				return []byte(piece), nil
			case <-held.Done():
				return nil, context.Cause(held)
			}
		}, func() {
			release()
			ended <- struct{}{}
		})
		return nil
	})
	return app, ended
}

func TestStreamWritesEachPieceAtOnce(t *testing.T) {
	pieces := make(chan string, 1)
	app, ended := streamer(pieces, io.EOF)
	conn := dial(t, serve(t, app))
	pieces <- "one"
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, piece := range []string{"one", "two", "three"} {
		if piece != "one" {
			pieces <- piece // only now, so what was read came before it
		}
		got := make([]byte, len(piece))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != piece {
			t.Fatalf("got %q, %v, want %q", got, err, piece)
		}
	}
	close(pieces)
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v, want the end", rest, err)
	}
	receive(t, ended, patience)
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Errorf("the connection is not kept: %v", err)
	}
	receive(t, ended, patience)
}

func TestStreamThatFailsHasNoEnd(t *testing.T) {
	pieces := make(chan string, 1)
	pieces <- "a part"
	close(pieces)
	app, ended := streamer(pieces, errors.New("no more"))
	resp, err := http.ReadResponse(bufio.NewReader(dial(t, serve(t, app))), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || string(got) != "a part" {
		t.Errorf("got %q, %v, want an unexpected end", got, err)
	}
	receive(t, ended, patience)
}

// A panic in fasthttp's goroutine would take all requests along.
func TestAPanicWhileAnAnswerIsWrittenEndsThatAnswerOnly(t *testing.T) {
	var log bytes.Buffer
	app := web.New(web.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	ended, first := make(chan struct{}, 1), true
	app.Get("/", func(c *fiber.Ctx) error {
		web.Stream(c, func() ([]byte, error) {
			if first {
				first = false
				return []byte("a part"), nil
			}
			panic("no such piece")
		}, func() { ended <- struct{}{} })
		return nil
	})
	resp, err := http.ReadResponse(bufio.NewReader(dial(t, serve(t, app))), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || string(got) != "a part" {
		t.Errorf("got %q, %v, want an unexpected end", got, err)
	}
	receive(t, ended, patience)
	for _, want := range []string{"no such piece", resp.Header.Get(web.HeaderRequestID)} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got log %s, want %q in it", &log, want)
		}
	}
}

func TestStreamAsksForNothingMoreOnceTheClientLeft(t *testing.T) {
	t.Parallel()
	t.Run("while a piece is awaited", func(t *testing.T) {
		t.Parallel()
		app, ended := streamer(make(chan string), io.EOF)
		_ = dial(t, serve(t, app)).Close()
		receive(t, ended, patience)
	})
	t.Run("while a piece is written", func(t *testing.T) {
		t.Parallel()
		pieces := make(chan string, 2)
		app, ended := streamer(pieces, io.EOF)
		conn := dial(t, serve(t, app))
		pieces <- string(make([]byte, 8<<20)) // more than fits on the way
		if _, err := bufio.NewReader(conn).ReadByte(); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		pieces <- "more"
		receive(t, ended, patience)
		if len(pieces) != 1 {
			t.Error("it asked for a piece that nobody wants")
		}
	})
}
