package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
	"flightline/shared/worker"
)

func TestOutcomeIsWhatTheHandlerMakesOfTheJob(t *testing.T) {
	tests := map[string]struct {
		handler worker.Handler
		status  job.Status
		output  string
		err     string
	}{
		"a value":          {returns(map[string]int{"n": 1}, nil), job.Completed, `{"n":1}`, ""},
		"raw JSON":         {returns(json.RawMessage(`{"a":"<b>"}`), nil), job.Completed, `{"a":"<b>"}`, ""},
		"nothing":          {returns(nil, nil), job.Completed, ``, ""},
		"JSON null":        {returns(json.RawMessage(`null`), nil), job.Completed, `null`, ""},
		"an error":         {returns("dropped", errors.New("no such model")), job.Failed, ``, "no such model"},
		"an empty error":   {returns(nil, errors.New("")), job.Failed, ``, "handler failed with a *errors.errorString without text"},
		"its own timeout":  {returns(nil, context.DeadlineExceeded), job.Failed, ``, "context deadline exceeded"},
		"not encodable":    {returns(math.NaN(), nil), job.Failed, ``, "the handler's output cannot be encoded as JSON: json: unsupported value: NaN"},
		"not JSON":         {returns(json.RawMessage(`{`), nil), job.Failed, ``, "the handler's output cannot be encoded as JSON: a json.RawMessage that is no JSON"},
		"its panic":        {panics("secret-4711"), job.Failed, ``, "handler panicked: string"},
		"a panicking type": {returns(explosive{}, nil), job.Failed, ``, "handler panicked: string"},
		"its goroutine's end": {
			func(context.Context, *worker.Job) (any, error) { runtime.Goexit(); return nil, nil },
			job.Failed, ``, "handler panicked: it ended its goroutine",
		},
	}
	s := newEnv(t)
	var mu sync.Mutex
	handlers := map[string]worker.Handler{}
	s.run(t, worker.Config{Concurrency: len(tests)}, func(ctx context.Context, j *worker.Job) (any, error) {
		var in struct {
			Test string `json:"test"`
		}
		if err := json.Unmarshal(j.Input, &in); err != nil {
			return nil, err
		}
		mu.Lock()
		h := handlers[in.Test]
		mu.Unlock()
		return h(ctx, j)
	})
	for name, tt := range tests {
		handlers[name] = tt.handler // before any is submitted that reads it
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			input, _ := json.Marshal(map[string]string{"test": name})
			id := s.submit(t, func(r *job.Request) { r.Input = input })
			s.wantEnd(t, id, tt.status, tt.output, tt.err)
		})
	}
}

func returns(output any, err error) worker.Handler {
	return func(context.Context, *worker.Job) (any, error) { return output, err }
}

func panics(v any) worker.Handler {
	return func(context.Context, *worker.Job) (any, error) { panic(v) }
}

type explosive struct{}

func (explosive) MarshalJSON() ([]byte, error) { panic("boom") }

func TestAPanicsStackIsInTheLogOnly(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var log strings.Builder
	w := s.run(t, worker.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, panics("secret-4711"))
	j := s.ended(t, s.submit(t))
	w.stop()
	if err := w.wait(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "secret-4711") || !strings.Contains(log.String(), "outcome_test.go") {
		t.Errorf("log: got %s, want the value and the stack", &log)
	}
	if strings.Contains(j.Error, "secret-4711") || strings.Contains(j.Error, ".go") {
		t.Errorf("error: got %q, want neither value nor stack", j.Error)
	}
}

func TestTheHandlerSeesTheJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	jobs := make(chan *worker.Job, 1)
	s.run(t, worker.Config{}, func(_ context.Context, j *worker.Job) (any, error) {
		jobs <- j
		return nil, nil
	})
	before := time.Now()
	id := s.submit(t, func(r *job.Request) {
		r.Webhook = "http://127.0.0.1/hook"
		r.Policy = job.Policy{ExecutionTimeout: time.Minute, TTL: time.Hour, LowPriority: true}
		r.S3Config = json.RawMessage(`{"accessId":"AK","accessSecret":"SK","bucketName":"b","endpointUrl":"http://s3"}`)
	})
	j := got(t, jobs, "a job")
	s.wantEnd(t, id, job.Completed, "", "")
	if j.ID != string(id) || string(j.Input) != `{"text":"hi"}` || j.Attempt != 1 || j.Run != 1 ||
		j.Webhook != "http://127.0.0.1/hook" || j.ExecutionTimeout != time.Minute || j.TTL != time.Hour || !j.LowPriority {
		t.Errorf("got %+v", *j)
	}
	if in := j.Deadline.Sub(before); in < 59*time.Second || in > 70*time.Second {
		t.Errorf("got a deadline in %v, want in a minute", in)
	}
	want := worker.S3Config{AccessID: "AK", AccessSecret: "SK", BucketName: "b", EndpointURL: "http://s3"}
	if c, ok := j.S3Config(); !ok || c != want {
		t.Errorf("got another s3Config, ok %v", ok)
	}
}

func TestChunksAndProgressReachTheCaller(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	goOn, reported := make(chan struct{}), make(chan struct{})
	s.run(t, worker.Config{}, func(ctx context.Context, j *worker.Job) (any, error) {
		for i := range 3 {
			if err := j.Emit(ctx, i); err != nil {
				return nil, err
			}
		}
		if err := j.Progress(ctx, "half"); err != nil {
			return nil, err
		}
		close(reported)
		<-goOn
		return "done", nil
	})
	id := s.submit(t)
	got(t, reported, "the progress")
	if j, err := s.q.Status(t.Context(), s.e, id); err != nil || string(j.Output) != `"half"` || j.Status != job.InProgress {
		t.Errorf("got %+v, %v, want progress", j, err)
	}
	testenv.Eventually(t, "the outputs 0 1 2 are there", func() bool {
		chunks := backend.Chunks(t, s.q, s.e, id)
		return len(chunks) == 3 && string(chunks[2].Data) == `{"output":2}`
	})
	close(goOn)
	s.wantEnd(t, id, job.Completed, `"done"`, "")
}

func TestAChunkThatIsTooLargeFailsTheJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.run(t, worker.Config{}, func(ctx context.Context, j *worker.Job) (any, error) {
		err := j.Emit(ctx, []string{strings.Repeat("x", job.MaxChunk)})
		if !errors.Is(err, worker.ErrChunkTooLarge) || !errors.Is(context.Cause(ctx), worker.ErrChunkTooLarge) {
			t.Errorf("got %v, cause %v", err, context.Cause(ctx))
		}
		return "ignores it", nil
	})
	s.wantEnd(t, s.submit(t), job.Failed, "", job.ErrTextChunkTooLarge)
}

func TestAStringThatIsTooLargeIsSplit(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	text := strings.Repeat("é", job.MaxChunk)
	s.run(t, worker.Config{}, func(ctx context.Context, j *worker.Job) (any, error) {
		return nil, j.Emit(ctx, text)
	})
	id := s.submit(t)
	s.ended(t, id)
	var got strings.Builder
	chunks := backend.Chunks(t, s.q, s.e, id)
	for _, c := range chunks {
		var element struct {
			Output string `json:"output"`
		}
		if err := json.Unmarshal(c.Data, &element); err != nil || len(c.Data) > job.MaxChunk {
			t.Errorf("got a chunk of %d bytes, %v", len(c.Data), err)
		}
		got.WriteString(element.Output)
	}
	if len(chunks) != 3 || got.String() != text {
		t.Errorf("got %d chunks with %d bytes of text, want 3 with %d", len(chunks), got.Len(), len(text))
	}
}

func TestAnOutputThatIsTooLargeFailsTheJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.run(t, worker.Config{}, returns(strings.Repeat("x", job.MaxOutput), nil))
	if j := s.ended(t, s.submit(t)); j.Status != job.Failed || !strings.HasPrefix(j.Error, job.ErrTextOutputTooLarge) {
		t.Errorf("got %s %q", j.Status, j.Error)
	}
}

func TestConcurrencyIsHowManyJobsRunAtOnce(t *testing.T) {
	t.Parallel()
	const slots, jobs = 3, 9
	s := newEnv(t)
	enter, leave := make(chan struct{}, jobs), make(chan struct{})
	s.run(t, worker.Config{Concurrency: slots}, func(context.Context, *worker.Job) (any, error) {
		enter <- struct{}{}
		<-leave
		return nil, nil
	})
	var ids []job.ID
	for range jobs {
		ids = append(ids, s.submit(t))
	}
	for range slots {
		got(t, enter, "a job in each slot")
	}
	testenv.Eventually(t, "as many are in progress", func() bool {
		stats, err := s.q.Counts.Stats(t.Context(), s.e)
		return err == nil && stats == (queue.Stats{Queued: jobs - slots, Running: slots})
	})
	if n := len(enter); n != 0 {
		t.Errorf("got %d more jobs, want none beyond the slots", n)
	}
	close(leave)
	for _, id := range ids {
		s.wantEnd(t, id, job.Completed, "", "")
	}
}
