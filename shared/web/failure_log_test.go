package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

func TestThousandsOfFailuresOfAnOutageAreSomeLines(t *testing.T) {
	const failed = 5000
	for _, tt := range []struct {
		code Code
		all  bool
	}{{Unavailable, false}, {Internal, true}} {
		t.Run(string(tt.code), func(t *testing.T) {
			var out bytes.Buffer
			f := newFailureLog(slog.New(slog.NewJSONHandler(&out, nil)))
			app := fiber.New()
			c := app.AcquireCtx(&fasthttp.RequestCtx{})
			defer app.ReleaseCtx(c)
			began := time.Now()
			for range failed {
				f.write(c, tt.code, errors.New("away"))
			}
			most := maxUnavailableBurst + int(time.Since(began).Seconds()*maxUnavailableRate) + 1
			lines, counted := 0, 0
			for _, rest := range f.unavailable.Attrs() {
				counted += int(rest.Value.Int64())
			}
			for line := range bytes.Lines(out.Bytes()) {
				var l struct {
					Msg       string `json:"msg"`
					NotLogged int    `json:"not_logged"` //nolint:tagliatelle // the key in the log
				}
				if err := json.Unmarshal(line, &l); err != nil || l.Msg != "request failed" {
					t.Fatalf("got line %s, %v", line, err)
				}
				lines, counted = lines+1, counted+1+l.NotLogged
			}
			if counted != failed {
				t.Errorf("the lines stand for %d failures, want %d", counted, failed)
			}
			if tt.all && lines != failed || !tt.all && lines > most {
				t.Errorf("got %d lines, want all: %v, else at most %d", lines, tt.all, most)
			}
		})
	}
}
