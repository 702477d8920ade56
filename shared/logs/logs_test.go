package logs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/logs"
	"flightline/shared/logs/logstest"
	"flightline/shared/testenv"
	"flightline/streams"
)

// env is a server with the stream, and an endpoint.
type env struct {
	*testenv.Server
	bus *bus.Client
	e   endpoint.Endpoint
}

func newEnv(t *testing.T) env {
	t.Helper()
	s := env{Server: testenv.NewServer(t), e: endpoint.Endpoint{ID: "ep"}}
	if err := streams.Apply(t.Context(), s.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	s.bus = bus.Bind(s.NC)
	return s
}

// record runs a recorder until stop is called.
func (s env) record(t *testing.T, worker string, secrets map[string]string) (r *logs.Recorder, stop func()) {
	t.Helper()
	r = logs.NewRecorder(s.bus, logs.Source{Endpoint: "ep", Worker: worker, Env: secrets}, nil)
	done := make(chan error, 1)
	go func() { done <- r.Run(context.WithoutCancel(t.Context())) }()
	return r, func() {
		r.End()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// print writes text to an output of a worker, and returns when it is stored.
func (s env) print(t *testing.T, worker string, secrets map[string]string, text string) {
	t.Helper()
	r, stop := s.record(t, worker, secrets)
	out := r.Stream(logs.Stdout)
	if n, err := io.WriteString(out, text); n != len(text) || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	_ = out.Close()
	stop()
}

// all are the lines that there are.
func (s env) all(t *testing.T, w logs.Watching) []logs.Entry {
	t.Helper()
	w.Endpoint = s.e
	if w.After == (logs.Cursor{}) && w.Since.IsZero() {
		w.Resume = true
	}
	return logstest.All(t, s.bus, w)
}

func TestLinesAreKeptAsTheyWerePrinted(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for name, test := range map[string]struct{ printed, want string }{
		"lines":             {"one\ntwo\r\n\nthree\n", "one|two||three"},
		"no newline":        {"one\ntwo", "one|two"},
		"a progress bar":    {"10%\r20%\rdone\n", "done"},
		"a long one":        {strings.Repeat("\r10%", 10_000) + "\rdone\nnext\n", "done|next"},
		"a long last one":   {long + strings.Repeat("10%\r", 10_000), "10%"},
		"invalid UTF-8":     {"a\xff\xfeb\n", "a\uFFFDb"},
		"a long line":       {long + "\nnext\n", long[:logs.MaxLine] + "|next"},
		"a long last line":  {long, long[:logs.MaxLine]},
		"a cut character":   {strings.Repeat("x", logs.MaxLine-1) + "é\n", strings.Repeat("x", logs.MaxLine-1)},
		"control, and HTML": {"<b>\x00\x1b[1m&\n", "<b>\x00\x1b[1m&"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			s.print(t, "w", nil, test.printed)
			got := s.all(t, logs.Watching{})
			if logstest.Texts(got) != test.want {
				t.Errorf("got %.200q, want %.200q", logstest.Texts(got), test.want)
			}
			for _, e := range got {
				if !utf8.ValidString(e.Text) || e.Cut != (len(e.Text) >= logs.MaxLine-1) || e.Worker != "w" || e.Stream != logs.Stdout || e.Time.IsZero() {
					t.Errorf("got %.200v", e)
				}
			}
		})
	}
}

// A line is the same in pieces of whatever length.
func TestLinesComeInPieces(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	bar := strings.Repeat("10%\r", 10_000) + "\rthree\r\r"
	text := "one\ntwo " + strings.Repeat("é", 9000) + "\n" + bar
	r, stop := s.record(t, "w", nil)
	out := r.Stream(logs.Stderr)
	for _, b := range []byte(text) {
		_, _ = out.Write([]byte{b})
	}
	_ = out.Close()
	stop()
	got := s.all(t, logs.Watching{})
	if len(got) != 3 || got[0].Text != "one" || got[2].Text != "three" || !got[1].Cut || !strings.HasPrefix(text[4:], got[1].Text) {
		t.Errorf("got %.300v", got)
	}
}

func TestSecretsAreHidden(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	secrets := map[string]string{
		"API_TOKEN": "hunter2-hunter2", "PRIVATE_KEY": "-----BEGIN-----\nc2VjcmV0c2VjcmV0\n-----END-----", "PASSWORD": `quote"quote"q`, "MODEL": "public-model-name",
	}
	edge := strings.Repeat("x", logs.MaxLine-5)
	s.print(t, "w", secrets, strings.Join([]string{
		"token hunter2-hunter2 of public-model-name", "c2VjcmV0c2VjcmV0", `{"p":"quote\"quote\"q"}`, "https://me:pw@host/x", "hf_abcdefghijklmnopqrst", edge + "hunter2-hunter2",
	}, "\n"))
	got := s.all(t, logs.Watching{})
	want := "token *** of public-model-name|***|{\"p\":\"***\"}|https://***@host/x|***|" + edge + "***"
	if logstest.Texts(got) != want {
		t.Errorf("got %.400q, want %.400q", logstest.Texts(got), want)
	}
}

// Hidden secrets make a line shorter, so that more of it is within its bound.
func TestASecretAtTheEndOfWhatIsLookedAtIsHidden(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	for shift := range 16 {
		s.print(t, "w", map[string]string{"API_TOKEN": "hunter2-hunter2"}, strings.Repeat("x", shift)+strings.Repeat("hunter2-hunter2 ", 2000)+"\n")
	}
	for _, e := range s.all(t, logs.Watching{}) {
		if strings.Contains(e.Text, "hu") || !e.Cut {
			t.Errorf("got a line that ends with %q, cut: %t", e.Text[max(0, len(e.Text)-40):], e.Cut)
		}
	}
}

func TestLinesNameTheirJobAndLevel(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	for _, test := range []struct {
		line  string
		job   job.ID
		level string
	}{
		{`{"requestId": "j-1", "message": "hello", "level": "INFO"}`, "j-1", "info"},
		{`{"requestId": null, "message": "hello", "level": "WARNING"}`, "", "warn"},
		{`{"time":"x","level":"ERROR","msg":"no","job":"j-2"}`, "j-2", "error"},
		{`time=2026-01-01T00:00:00Z level=INFO msg="command says" job=j-3 run=1 stderr=x`, "j-3", "info"},
		{`INFO   | j-4 | Started.`, "j-4", "info"},
		{`ERROR  | Failed.`, "", "error"},
		{`{"job": 5}`, "", ""},
		{`{not json`, "", ""},
		{`the job=x y/z`, "x", ""},
		{`plain`, "", ""},
	} {
		s.print(t, "w", nil, test.line+"\n")
		all := s.all(t, logs.Watching{})
		if got := all[len(all)-1]; got.Job != test.job || got.Level != test.level || got.Text != test.line {
			t.Errorf("%s: got %+v", test.line, got)
		}
	}
	if got := s.all(t, logs.Watching{Job: "j-2"}); len(got) != 1 {
		t.Errorf("of one job: got %v", got)
	}
}

// A flood costs the writer nothing, and the bus what the rate allows; a line says
// how many are missing.
func TestAFloodIsDroppedAndCounted(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	r, stop := s.record(t, "w", nil)
	out := r.Stream(logs.Stdout)
	line := strings.Repeat("y", 99) + "\n"
	piece, pieces := bytes.Repeat([]byte(line), 1000), 1000 // 100 MB
	began := time.Now()
	for range pieces {
		_, _ = out.Write(piece)
	}
	took := time.Since(began)
	stop()
	kept, dropped := 0, 0
	for _, e := range s.all(t, logs.Watching{}) {
		var n int
		switch {
		case e.Stream != logs.Dropped:
			kept++
		case must(fmt.Sscanf(e.Text, "%d line", &n)) == 1:
			dropped += n
		}
	}
	if kept+dropped != 1000*pieces || dropped == 0 || kept == 0 {
		t.Errorf("got %d lines and %d dropped, want %d together", kept, dropped, 1000*pieces)
	}
	if most := int((took.Seconds()+2)*logs.MaxRate/100) + 2<<20/100; kept > most {
		t.Errorf("got %d lines kept in %v, want %d at most", kept, took, most)
	}
}

func must(n int, _ error) int { return n }

// While the bus is away lines wait, and what there is no room for is counted.
func TestAnOutageIsSatOut(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	r, stop := s.record(t, "w", nil)
	out := r.Stream(logs.Stdout)
	s.Stop()
	_, _ = io.WriteString(out, "one\ntwo\n")
	_, _ = out.Write(bytes.Repeat([]byte("more\n"), 1_000_000))
	s.Start()
	_, _ = io.WriteString(out, "last\n")
	testenv.Eventually(t, "the lines are there", func() bool {
		found, err := s.JS.Stream(t.Context(), streams.Logs(0))
		return err == nil && found.CachedInfo().State.Msgs > 0
	})
	stop()
	got := s.all(t, logs.Watching{})
	if len(got) < 3 || got[0].Text != "one" || got[1].Text != "two" {
		t.Fatalf("got %d lines: %.300v", len(got), got)
	}
	if dropped := got[len(got)-1]; dropped.Stream != logs.Dropped && got[len(got)-2].Stream != logs.Dropped {
		t.Errorf("got no word of what is missing: %.300v", got[len(got)-2:])
	}
}

// A reader that comes back where it was misses nothing, and reads nothing twice.
func TestAReaderResumesAnywhere(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	for i := range 3 {
		s.print(t, fmt.Sprintf("w%d", i), nil, fmt.Sprintf("a%d\nb%d\nc%d\n", i, i, i))
	}
	whole := s.all(t, logs.Watching{})
	if logstest.Texts(whole) != "a0|b0|c0|a1|b1|c1|a2|b2|c2" {
		t.Fatalf("got %s", logstest.Texts(whole))
	}
	for i, e := range whole {
		at, err := logs.ParseCursor(e.Cursor.String())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := logstest.Texts(s.all(t, logs.Watching{After: at, Resume: true})), logstest.Texts(whole[i+1:]); got != want {
			t.Errorf("after %s: got %s, want %s", e.Cursor, got, want)
		}
	}
	if got := logstest.Texts(s.all(t, logs.Watching{Worker: "w1"})); got != "a1|b1|c1" {
		t.Errorf("of one worker: got %s", got)
	}
	if got := logstest.Texts(s.all(t, logs.Watching{Since: whole[3].Time})); !strings.HasSuffix(got, "a2|b2|c2") {
		t.Errorf("since: got %s", got)
	}
	for _, bad := range []string{"", "x", "-1", "1-", "0-1", "1-x", "1-2-3", "99999999999999999999"} {
		if _, err := logs.ParseCursor(bad); !errors.Is(err, logs.ErrCursor) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

// A reader that waits gets lines as they come, and none from before.
func TestAReaderFollows(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.print(t, "w", nil, "before\n")
	v, err := logs.NewWatch(t.Context(), s.bus, logs.Watching{Endpoint: s.e})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	r, stop := s.record(t, "w", nil)
	for i := range 3 {
		want := fmt.Sprintf("line %d", i)
		r.Log(logs.Logger, time.Time{}, "j", "info", want)
		got, err := v.Next(t.Context())
		if err != nil || len(got) != 1 || got[0].Text != want || got[0].Job != "j" {
			t.Fatalf("got %v, %v", got, err)
		}
	}
	stop()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := v.Next(ended); got != nil || err != nil {
		t.Errorf("at the end: got %v, %v", got, err)
	}
}

// Lines that come while a watch begins are heard by another goroutine.
func TestAWatchBeginsWhileLinesCome(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.print(t, "w", nil, "kept\n")
	testenv.Background(t, func(ctx context.Context) error {
		m := nats.NewMsg(streams.Logged(s.e.Partition, s.e.ID, "w"))
		m.Header.Set(jetstream.SequenceHeader, "1")
		for ctx.Err() == nil {
			if err := s.NC.PublishMsg(m); err != nil {
				return err
			}
			_ = s.NC.Flush() // no faster than the server
		}
		return nil
	})
	for range 20 {
		if got := logstest.Texts(s.all(t, logs.Watching{})); got != "kept" {
			t.Fatalf("got %s", got)
		}
	}
}

// An endpoint that is made again under an id has none of the lines of the first.
func TestAnEarlierEndpointsLinesAreLeftOut(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.print(t, "w", nil, "old\n")
	s.e.Created = time.Now()
	s.print(t, "w", nil, "new\n")
	if got := logstest.Texts(s.all(t, logs.Watching{})); got != "new" {
		t.Errorf("got %s", got)
	}
}

// A replica that lags lacks the newest lines, and a watch begins at them all the same.
func TestAWatchBeginsThoughAReplicaLags(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]logs.Watching{"since": {Since: time.Now().Add(-time.Hour)}, "resumed": {Resume: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			s.print(t, "w", nil, "line\n")
			s.lagging(t, func(*nats.Msg) (again bool) { return false })
			if got := logstest.Texts(s.all(t, w)); got != "line" {
				t.Errorf("got %q, want the line", got)
			}
		})
	}
}

// A replica that lags for some reads ends no list of the lines that there are.
func TestAllLinesAreReadThoughAReplicaLags(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.print(t, "w", nil, "line\n")
	reads := 0
	s.lagging(t, func(m *nats.Msg) (again bool) {
		if bytes.Contains(m.Data, []byte("start_time")) { // another replica answers that
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{
				jetstream.StreamHeader: {streams.Logs(0)}, jetstream.SubjectHeader: {streams.LogSubject(0, "ep", "w")},
				jetstream.SequenceHeader: {"1"}, jetstream.TimeStampHeaer: {time.Now().Format(time.RFC3339Nano)},
			}})
			return true
		}
		reads++
		return reads < 4
	})
	if got := logstest.Texts(s.all(t, logs.Watching{})); got != "line" || reads < 4 {
		t.Errorf("got %q after %d reads, want the line after 4", got, reads)
	}
}

// lagging has a replica answer direct gets that has no lines, as long as again says so.
func (s env) lagging(t *testing.T, again func(*nats.Msg) bool) {
	t.Helper()
	of, err := s.JS.Stream(t.Context(), streams.Logs(0))
	if err != nil {
		t.Fatal(err)
	}
	direct := func(allowed bool) error {
		cfg := of.CachedInfo().Config
		cfg.AllowDirect = allowed
		_, err := s.JS.UpdateStream(t.Context(), cfg)
		return err
	}
	if err := direct(false); err != nil {
		t.Fatal(err)
	}
	testenv.Handle(t, s.Connect(t), bus.DirectGet(streams.Logs(0)), func(m *nats.Msg) {
		if !again(m) {
			if err := errors.Join(m.Sub.Unsubscribe(), direct(true)); err != nil {
				t.Error(err)
			}
		}
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"No Results"}}})
	})
}

func TestTheLinesOfADeletedEndpointGo(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.print(t, "w", nil, "old\n")
	if err := logs.Drop(t.Context(), s.bus, s.e); err != nil {
		t.Fatal(err)
	}
	if got := s.Messages(t, streams.Logs(0)); got != 0 {
		t.Errorf("got %d messages left", got)
	}
}

// BenchmarkLines is what a line costs that is kept, and the bytes of a flood that are not.
func BenchmarkLines(b *testing.B) {
	for name, line := range map[string]string{
		"plain": strings.Repeat("x", 99), "slog": `time=2026-01-01T00:00:00.000Z level=INFO msg="a step" job=01920c2e-7a4b-7c1d-8e2f-3a4b5c6d7e8f n=1234567`,
		"json": `{"requestId": "01920c2e-7a4b-7c1d-8e2f-3a4b5c6d7e8f", "message": "a step of the job", "level": "INFO"}`,
	} {
		b.Run(name, func(b *testing.B) {
			secrets := map[string]string{"API_TOKEN": "secret-of-the-test"}
			piece := []byte(line + "\n")
			b.SetBytes(int64(len(piece)))
			for n := 0; n < b.N; { // each recorder keeps what its burst has room for
				r := logs.NewRecorder(nil, logs.Source{Worker: "w", Env: secrets}, nil)
				out := r.Stream(logs.Stdout)
				for range min(b.N-n, 5000) {
					_, _ = out.Write(piece)
				}
				n += 5000
			}
		})
	}
	b.Run("flood", func(b *testing.B) {
		out := logs.NewRecorder(nil, logs.Source{Worker: "w"}, nil).Stream(logs.Stdout)
		piece := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 320)
		b.SetBytes(int64(len(piece)))
		for range b.N {
			_, _ = out.Write(piece)
		}
	})
}
