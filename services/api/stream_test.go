package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/shared/queue"
	"flightline/shared/testenv"
)

// emit appends chunks whose outputs these are.
func (s *env) emit(lease *queue.Lease, outputs ...string) {
	s.t.Helper()
	for _, output := range outputs {
		if err := lease.Emit(s.t.Context(), json.RawMessage(`{"output":`+output+`}`)); err != nil {
			s.t.Fatal(err)
		}
		if err := lease.Flush(s.t.Context()); err != nil { // each in a message of its own
			s.t.Fatal(err)
		}
	}
}

// emitted has a worker emit two chunks and fail, or go on.
func emitted(fails bool) func(*env, string) {
	return func(s *env, _ string) {
		lease := s.take()
		s.emit(lease, `"Hello"`, `{"tokens":2}`)
		if !fails {
			return
		}
		if _, err := lease.Fail(s.t.Context(), "out of words"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// wantStream asks once and compares status and outputs, each a JSON value.
func (s *env) wantStream(path, status string, outputs ...string) answer {
	s.t.Helper()
	a := s.do("POST", path, "")
	chunks := make([]string, len(outputs))
	for i, output := range outputs {
		chunks[i] = `{"output":` + output + `}`
	}
	if want := `{"status":"` + status + `","stream":[` + strings.Join(chunks, ",") + `]}`; a.status != 200 || a.raw != want {
		s.t.Fatalf("%s: got %d %.300s, want %.300s", path, a.status, a.raw, want)
	}
	return a
}

func TestStreamTellsEachChunkOnceAndThenTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	path := "/ep/stream/" + id
	began := time.Now()
	s.wantStream(path+"?wait=1000", "IN_QUEUE")
	if took := time.Since(began); took < time.Second || took > time.Second+noise {
		t.Errorf("it was held for %v, want a second", took)
	}
	lease := s.take()
	s.emit(lease, `1`, `"<two> & more"`)
	s.wantStream(path, "IN_PROGRESS", `1`, `"<two> & more"`)
	s.wantStream(path+"?wait=1000", "IN_PROGRESS")
	s.emit(lease, `3`)
	if _, err := lease.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s.wantStream(path, "COMPLETED", `3`)
	began = time.Now()
	for range 3 {
		s.wantStream(path, "COMPLETED")
	}
	if took := time.Since(began); took > noise {
		t.Errorf("what is over was held for %v, want an answer at once", took)
	}
}

func TestStreamAnswersWhenAChunkComes(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit()
	lease := s.take()
	before := s.conn.NumSubscriptions()
	for i := range 3 {
		got := make(chan answer, 1)
		go func() { got <- s.do("GET", "/ep/stream/"+string(lease.Job.ID)+"?format=object", "") }()
		testenv.Eventually(t, "it is held", func() bool { return s.conn.NumSubscriptions() >= before+2 })
		began := time.Now()
		s.emit(lease, fmt.Sprint(i))
		a := <-got
		if want := fmt.Sprintf(`{"status":"IN_PROGRESS","stream":[{"output":%d}]}`, i); a.raw != want || time.Since(began) > noise {
			t.Errorf("got %s after %v, want %s at once", a.raw, time.Since(began), want)
		}
	}
}

func TestStreamIsBoundedAndTellsTheEndLast(t *testing.T) {
	t.Parallel()
	const chunks = 7
	s := start(t)
	id := s.submit()
	lease := s.take()
	for i := range chunks {
		s.emit(lease, fmt.Sprintf(`"%d%s"`, i, strings.Repeat("x", 900<<10)))
	}
	if _, err := lease.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	told := 0
	for told < chunks {
		a := s.do("POST", "/ep/stream/"+id, "")
		if len(a.raw) > 3<<20 {
			t.Errorf("got an answer of %d bytes, want a bounded one", len(a.raw))
		}
		for _, c := range a.body["stream"].([]any) {
			if text := c.(map[string]any)["output"].(string); !strings.HasPrefix(text, fmt.Sprint(told)) {
				t.Fatalf("got %.5s…, want chunk %d", text, told)
			}
			told++
		}
		want := "IN_PROGRESS"
		if told == chunks {
			want = "FAILED"
		}
		if a.body["status"] != want || (a.body["error"] != nil) != (want == "FAILED") {
			t.Fatalf("after %d chunks: got %v and error %v, want %s", told, a.body["status"], a.body["error"], want)
		}
	}
	if a := s.do("POST", "/ep/stream/"+id, ""); a.raw != `{"status":"FAILED","stream":[],"error":"no"}` {
		t.Errorf("afterwards: got %.100s", a.raw)
	}
}

func TestStreamByCursorMovesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	lease := s.take()
	s.emit(lease, `1`, `2`)
	path := "/ep/stream/" + id
	first := s.wantStream(path+"?cursor=0", "IN_PROGRESS", `1`, `2`)
	s.wantStream(path+"?cursor=0", "IN_PROGRESS", `1`, `2`)
	s.emit(lease, `3`)
	next := s.wantStream(path+"?cursor="+first.header.Get("X-Stream-Cursor"), "IN_PROGRESS", `3`)
	if none := s.wantStream(path+"?wait=1000&cursor="+next.header.Get("X-Stream-Cursor"), "IN_PROGRESS"); none.header.Get("X-Stream-Cursor") != next.header.Get("X-Stream-Cursor") {
		t.Errorf("none: got cursor %q, want it to stay", none.header.Get("X-Stream-Cursor"))
	}
	plain := s.wantStream(path, "IN_PROGRESS", `1`, `2`, `3`)
	if got, want := plain.header.Get("X-Stream-Cursor"), next.header.Get("X-Stream-Cursor"); got != want {
		t.Errorf("plain: got cursor %q, want %q", got, want)
	}
}

func TestStreamOfARetriedJobStartsAnew(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	lease := s.take()
	s.emit(lease, `"old"`)
	s.wantStream("/ep/stream/"+id, "IN_PROGRESS", `"old"`)
	s.emit(lease, `"never read"`)
	if _, err := lease.Fail(t.Context(), "once"); err != nil {
		t.Fatal(err)
	}
	s.do("POST", "/ep/retry/"+id, "")
	s.wantStream("/ep/stream/"+id+"?wait=1000", "IN_QUEUE")
	s.emit(s.take(), `"new"`)
	s.wantStream("/ep/stream/"+id, "IN_PROGRESS", `"new"`)
}

func TestStreamFormsOverTheWire(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	s.emit(s.take(), `1`)
	const array, object = `[{"output":1}]`, `{"status":"IN_PROGRESS","stream":[{"output":1}]}`
	tests := map[string]struct {
		method, query string
		header        http.Header
		want          string
	}{
		"the contract's":  {"GET", "", nil, array},
		"RunPod's Python": {"GET", "", http.Header{"Content-Type": {"application/json"}}, object},
		"RunPod's Go":     {"POST", "", http.Header{"Content-Type": {"application/json"}}, object},
		"asked for":       {"POST", "&format=array", nil, array},
	}
	for name, test := range tests {
		req := s.request(test.method, "/ep/stream/"+id+"?cursor=0"+test.query, nil)
		maps.Copy(req.Header, test.header)
		got := s.sendLoosely(req)
		if got.raw != test.want || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %s (%s), want %s", name, got.raw, got.header.Get("Content-Type"), test.want)
		}
	}
}

func TestStreamOfACancelledJob(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	s.emit(s.take(), `1`)
	s.do("POST", "/ep/cancel/"+id, "")
	s.wantStream("/ep/stream/"+id, "CANCELLED", `1`)
	s.wantStream("/ep/stream/"+id, "CANCELLED")
}

func TestStreamRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	tests := map[string]struct {
		path, header string
		status       int
		code, text   string
	}{
		"wait too short":      {"/ep/stream/" + id + "?wait=999", "", 400, "invalid_request", `wait is invalid; must be between 1000 and 300000, got "999"`},
		"wait too long":       {"/ep/stream/" + id + "?wait=300001", "", 400, "invalid_request", `wait is invalid; must be between 1000 and 300000, got "300001"`},
		"wait, as events":     {"/ep/stream/" + id + "?format=sse&wait=x", "", 400, "invalid_request", `wait is invalid; must be between 1000 and 300000, got "x"`},
		"a format":            {"/ep/stream/" + id + "?format=xml", "", 400, "invalid_request", `format is invalid; must be object, array or sse, got "xml"`},
		"a cursor":            {"/ep/stream/" + id + "?cursor=-1", "", 400, "invalid_request", `cursor is invalid; must be a cursor of an earlier answer, or 0, got "-1"`},
		"no cursor":           {"/ep/stream/" + id + "?cursor=", "", 400, "invalid_request", `cursor is invalid; must be a cursor of an earlier answer, or 0, got ""`},
		"too large a cursor":  {"/ep/stream/" + id + "?cursor=18446744073709551616", "", 400, "invalid_request", `cursor is invalid; must be a cursor of an earlier answer, or 0, got "18446744073709551616"`},
		"an event's id":       {"/ep/stream/" + id + "?format=sse", "x", 400, "invalid_request", `Last-Event-ID is invalid; must be a cursor of an earlier answer, or 0, got "x"`},
		"nobody":              {"/ep/stream/nobody", "", 404, "job_not_found", ""},
		"nobody, as events":   {"/ep/stream/nobody?format=sse", "", 404, "job_not_found", ""},
		"no endpoint":         {"/nobody/stream/" + id, "", 404, "endpoint_not_found", ""},
		"no id":               {"/ep/stream/a.b", "", 404, "job_not_found", ""},
		"nobody, by a cursor": {"/ep/stream/nobody?cursor=1", "", 404, "job_not_found", ""},
	}
	for name, test := range tests {
		req := s.request("GET", test.path, nil)
		if test.header != "" {
			req.Header.Set("Last-Event-ID", test.header)
		}
		got := s.send(req)
		if got.status != test.status || got.body["code"] != test.code || test.text != "" && got.body["error"] != test.text {
			t.Errorf("%s: got %d %s, want %d %s %q", name, got.status, got.raw, test.status, test.code, test.text)
		}
	}
}
