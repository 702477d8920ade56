package clients

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
)

const script = "python/worker.py"

type input map[string]any

func TestAPlainHandlersResults(t *testing.T) {
	t.Parallel()
	b := newBench(t, script)
	b.start("plain")
	for name, test := range map[string]struct {
		in     any
		status job.Status
		output string
		error  string // part of it
	}{
		"its input":      {input{"text": "héllo ✓"}, job.Completed, `{"text":"héllo ✓"}`, ""},
		"empty input":    {input{}, job.Completed, "", ""},
		"an exception":   {input{"do": "raise"}, job.Failed, "", `"error_message": "told to fail"`},
		"an error":       {input{"do": "error"}, job.Failed, `{"partial":true}`, `{"code":7}`},
		"nothing":        {input{"do": "nothing"}, job.Completed, "null", ""},
		"no JSON number": {input{"do": "nan"}, job.Completed, `{"loss":null,"text":"NaN"}`, ""},
	} {
		id := b.submit(test.in)
		j := b.until(id, test.status)
		if got := compact(j.Output); got != test.output || !strings.Contains(j.Error, test.error) {
			t.Errorf("%s: got %s %q, want %s %q", name, got, j.Error, test.output, test.error)
		}
		b.ran(id, 1)
	}
	b.counts(4, 2)
}

func TestProgressShowsWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, script)
	b.start("plain")
	id := b.submit(input{"do": "progress", "wait": true})
	b.eventually("the progress shows", func() bool {
		j, err := b.s.api.Status(t.Context(), b.endpoint, id)
		return err == nil && j.Status == job.InProgress && compact(j.Output) == `{"percent":50}`
	})
	b.letGo()
	b.until(id, job.Completed)
	b.ran(id, 1)
}

func TestTwentyMegabytesInAndOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, script)
	b.start("plain")
	text := strings.Repeat("0123456789abcdef", (20<<20-100)/16)
	j, err := b.s.api.RunSync(t.Context(), b.endpoint, client.Request{Input: input{"text": text}}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(j.Output, &got); err != nil || got.Text != text {
		t.Errorf("got %s, %d bytes, %v, want the %d bytes of the input", j.Status, len(got.Text), err, len(text))
	}
	id := b.submit(input{"do": "bytes", "bytes": 21 << 20})
	if j := b.until(id, job.Failed); !strings.Contains(j.Error, "output_too_large") {
		t.Errorf("21 MB: got %q, want output_too_large", j.Error)
	}
	b.ran(id, 1)
	b.completes(b.submit(input{"n": 1}), `{"n":1}`) // the worker goes on
}

func TestGeneratorsStream(t *testing.T) {
	t.Parallel()
	for handler, output := range map[string]string{"generator": `[]`, "aggregate": `[{"n":0},{"n":1},{"n":2}]`} {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, script)
			b.start(handler)
			id := b.submit(input{"chunks": 3})
			if got := fmt.Sprint(b.chunks(id)); got != `[{"n":0} {"n":1} {"n":2}]` {
				t.Errorf("got chunks %s, want three", got)
			}
			if j := b.until(id, job.Completed); compact(j.Output) != output {
				t.Errorf("got output %s, want %s", j.Output, output)
			}
			b.ran(id, 1)
			id = b.submit(input{"chunks": 3, "fail_at": 2})
			if got := fmt.Sprint(b.chunks(id)); got != `[{"n":0} {"n":1}]` {
				t.Errorf("got chunks %s, want two", got)
			}
			if j := b.until(id, job.Failed); !strings.Contains(j.Error, "told to fail") {
				t.Errorf("got error %q, want the handler's", j.Error)
			}
			b.ran(id, 1)
			b.counts(1, 1)
		})
	}
}

func TestEightAtOnceEachOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, script)
	ids := make([]job.ID, 24)
	for i := range ids {
		ids[i] = b.submit(input{"wait": true, "n": i})
	}
	b.start("concurrent")
	b.eventually("eight have begun", func() bool { return mostAtOnce(b.notes()) >= 8 })
	b.letGo()
	for _, id := range ids {
		b.until(id, job.Completed)
		b.ran(id, 1)
	}
	b.counts(len(ids), 0)
	if got := mostAtOnce(b.notes()); got != 8 {
		t.Errorf("got at most %d at once, want 8", got)
	}
}

// mostAtOnce is how many jobs had begun and not ended, at most.
func mostAtOnce(notes string) (most int) {
	now := 0
	for line := range strings.Lines(notes) {
		switch {
		case strings.HasPrefix(line, "start"):
			now++
		case strings.HasPrefix(line, "end"):
			now--
		}
		most = max(most, now)
	}
	return most
}

// compact is JSON without what Python puts between its parts.
func compact(v json.RawMessage) string {
	if len(v) == 0 {
		return ""
	}
	var parsed any
	if err := json.Unmarshal(v, &parsed); err != nil {
		return string(v)
	}
	text, err := json.Marshal(parsed)
	if err != nil {
		return string(v)
	}
	return string(text)
}
