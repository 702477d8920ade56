package driver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// frame is what the engine sends of an output; 1 is stdout, 2 stderr.
func frame(output byte, text string) []byte {
	head := make([]byte, 8)
	head[0] = output
	binary.BigEndian.PutUint32(head[4:], uint32(len(text)))
	return append(head, text...)
}

// The engine's frames are pieces with their time, those up to since are left out, and an
// engine that breaks off is unavailable.
func TestAnEnginesFramesArePieces(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 1, 1, 0, 0, 0, 5, time.UTC)
	stamp := func(n int) string { return base.Add(time.Duration(n)).Format(time.RFC3339Nano) + " " }
	var asked string
	broken := false
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/logs") {
			w.Header().Set("Api-Version", "1.51")
			return
		}
		if strings.Contains(r.URL.Path, "absent") {
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"message":"No such container"}`)
			return
		}
		asked = r.URL.RawQuery
		for _, f := range [][]byte{frame(1, stamp(0)+"old\n"), frame(1, stamp(1)+"half a "), frame(2, stamp(2)+"error\n"), frame(1, stamp(3)+"line\n"), frame(1, "no stamp\n")} {
			_, _ = w.Write(f)
		}
		if broken {
			_, _ = w.Write([]byte{1, 0, 0})
			_ = http.NewResponseController(w).Flush() // a client repeats a request without an answer
			panic(http.ErrAbortHandler)
		}
	}))
	defer engine.Close()
	d := connect(t, DockerConfig{Host: "tcp://" + strings.TrimPrefix(engine.URL, "http://")})
	var out, errs bytes.Buffer
	var at []time.Time
	each := func(p Printed) {
		to := &out
		if p.Stderr {
			to = &errs
		}
		to.Write(p.Text)
		at = append(at, p.At)
	}
	if err := d.Follow(t.Context(), "p", base, each); err != nil {
		t.Fatal(err)
	}
	if out.String() != "half a line\nno stamp\n" || errs.String() != "error\n" || len(at) != 4 || !at[2].Equal(base.Add(3)) {
		t.Errorf("got %q, %q at %v", out.String(), errs.String(), at)
	}
	for _, want := range []string{"follow=1", "timestamps=1", "since="} {
		if !strings.Contains(asked, want) {
			t.Errorf("got %s, want %s in it", asked, want)
		}
	}
	broken = true
	if err := d.Follow(t.Context(), "p", base, each); !errors.Is(err, ErrUnavailable) {
		t.Errorf("broken off: got %v", err)
	}
	if err := d.Follow(t.Context(), "absent", base, each); err != nil {
		t.Errorf("no container: got %v", err)
	}
}
