package endpoint_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/endpoint"
)

const day = 24 * time.Hour

func TestCompleteFillsInTheDefaults(t *testing.T) {
	got, err := endpoint.Endpoint{ID: "ep"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	want := endpoint.Endpoint{
		ID: "ep", Name: "ep", ExecutionTimeout: 10 * time.Minute, TTL: day,
		Retention: 30 * time.Minute, SyncRetention: time.Minute, Lease: 30 * time.Second, MaxLost: 3, MaxQueueBytes: 10 << 30, MaxQueueJobs: 1_000_000,
		WorkersMax: 3, ScalerType: "QUEUE_DELAY", ScalerValue: 4, IdleTimeout: 5 * time.Second, StreamFormat: "auto",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCompleteKeepsWhatIsGiven(t *testing.T) {
	given := endpoint.Endpoint{
		ID: "A_b-9", Name: "größer", ExecutionTimeout: time.Hour, TTL: 2 * time.Hour, Retention: time.Minute,
		SyncRetention: 5 * time.Minute, Lease: 20 * time.Second, MaxLost: 7, MaxQueueBytes: 40 << 20, MaxQueueJobs: 9, RequestsPerWorker: 4, WorkersMin: 2, WorkersMax: 5,
		ScalerType: "REQUEST_COUNT", ScalerValue: 2, IdleTimeout: time.Minute, PausedUntil: time.Unix(2, 0),
		Fleet: endpoint.Fleet{Driver: "docker", Image: "x", GPUs: 1}, Env: map[string]string{"A": "b"},
		StreamFormat: "object", Limits: map[string]endpoint.Limit{"run": {Requests: 1}}, Partition: 3,
		WebhookSecret: "whsec_x", Created: time.Unix(1, 0), Version: 4, Deleting: true,
	}
	got, err := given.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(given, got); diff != "" {
		t.Errorf("(-given +got):\n%s", diff)
	}
	again, err := got.Complete()
	if diff := cmp.Diff(got, again); err != nil || diff != "" {
		t.Errorf("completed twice: %v (-once +twice):\n%s", err, diff)
	}
}

// Each bound is exact: the value itself is taken, one step beyond is refused
// by the field's JSON name.
func TestCompleteBounds(t *testing.T) {
	type set = func(*endpoint.Endpoint, int64)
	duration := func(of func(*endpoint.Endpoint) *time.Duration) set {
		return func(e *endpoint.Endpoint, ms int64) { *of(e) = time.Duration(ms) * time.Millisecond }
	}
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	tests := map[string]struct {
		set         set
		least, most int64
	}{
		"executionTimeoutMs": {duration(func(e *endpoint.Endpoint) *time.Duration { return &e.ExecutionTimeout }), ms(5 * time.Second), ms(7 * day)},
		"ttlMs":              {duration(func(e *endpoint.Endpoint) *time.Duration { return &e.TTL }), ms(10 * time.Second), ms(7 * day)},
		"retentionMs":        {duration(func(e *endpoint.Endpoint) *time.Duration { return &e.Retention }), ms(time.Second), ms(7 * day)},
		"syncRetentionMs":    {duration(func(e *endpoint.Endpoint) *time.Duration { return &e.SyncRetention }), ms(time.Second), ms(5 * time.Minute)},
		"leaseMs":            {duration(func(e *endpoint.Endpoint) *time.Duration { return &e.Lease }), ms(10 * time.Second), ms(time.Hour)},
		"maxLostWorkers":     {func(e *endpoint.Endpoint, n int64) { e.MaxLost = int(n) }, 1, 100},
		"maxQueueBytes":      {func(e *endpoint.Endpoint, n int64) { e.MaxQueueBytes = n }, 32 << 20, 1_000_000_000_000},
		"maxQueueJobs":       {func(e *endpoint.Endpoint, n int64) { e.MaxQueueJobs = n }, 1, 1_000_000_000},
		"requestsPerWorker":  {func(e *endpoint.Endpoint, n int64) { e.RequestsPerWorker = int(n) }, 0, 100_000},
		"failureBudget":      {func(e *endpoint.Endpoint, n int64) { e.FailureBudget = int(n) }, 0, 1000},
		"workersMax":         {func(e *endpoint.Endpoint, n int64) { e.WorkersMax = int(n) }, 0, 1000},
		"workersMin":         {func(e *endpoint.Endpoint, n int64) { e.WorkersMin, e.WorkersMax = int(n), 9 }, 0, 9},
		"partition":          {func(e *endpoint.Endpoint, n int64) { e.Partition = int(n) }, 0, 1023},
	}
	for field, tt := range tests {
		t.Run(field, func(t *testing.T) {
			complete := func(n int64) error {
				e := endpoint.Endpoint{ID: "ep"}
				tt.set(&e, n)
				_, err := e.Complete()
				return err
			}
			for _, n := range []int64{tt.least, tt.least + 1, tt.most - 1, tt.most} {
				if err := complete(n); err != nil {
					t.Errorf("%d: got %v, want it taken", n, err)
				}
			}
			for _, n := range []int64{tt.least - 1, tt.most + 1, -1 << 40, 1 << 40} {
				if n != 0 { // which means the default
					checkField(t, complete(n), field)
				}
			}
		})
	}
}

// An endpoint made before there was NoWorkers says 0 for what nobody gave.
func TestNoWorkersIsNotTheDefault(t *testing.T) {
	for name, tt := range map[string]struct {
		e    endpoint.Endpoint
		want int
		none bool
	}{
		"not said":          {endpoint.Endpoint{}, 3, false},
		"a larger minimum":  {endpoint.Endpoint{WorkersMin: 5}, 5, false},
		"none":              {endpoint.Endpoint{NoWorkers: true}, 0, true},
		"a number says all": {endpoint.Endpoint{WorkersMax: 2, NoWorkers: true}, 2, false},
	} {
		tt.e.ID = "ep"
		if got, err := tt.e.Complete(); err != nil || got.WorkersMax != tt.want || got.NoWorkers != tt.none {
			t.Errorf("%s: got %d, %v, %v, want %d, %v", name, got.WorkersMax, got.NoWorkers, err, tt.want, tt.none)
		}
	}
	_, err := endpoint.Endpoint{ID: "ep", NoWorkers: true, WorkersMin: 1}.Complete()
	checkField(t, err, "workersMin")
}

func checkField(t *testing.T, err error, field string) {
	t.Helper()
	var wrong *endpoint.FieldError
	if !errors.As(err, &wrong) || !errors.Is(err, endpoint.ErrInvalid) {
		t.Errorf("got %v, want a *FieldError that is ErrInvalid", err)
		return
	}
	if wrong.Field != field {
		t.Errorf("got field %q (%v), want %q", wrong.Field, err, field)
	}
}

func TestCompleteRefuses(t *testing.T) {
	tests := map[string]struct {
		e     endpoint.Endpoint
		field string
	}{
		"no id":               {endpoint.Endpoint{Name: "x"}, "id"},
		"an id with a dot":    {endpoint.Endpoint{ID: "a.b"}, "id"},
		"a reserved id":       {endpoint.Endpoint{ID: "env"}, "id"},
		"a name too long":     {endpoint.Endpoint{ID: "ep", Name: strings.Repeat("é", 192)}, "name"},
		"min above max":       {endpoint.Endpoint{ID: "ep", WorkersMin: 2, WorkersMax: 1}, "workersMin"},
		"another format":      {endpoint.Endpoint{ID: "ep", StreamFormat: "sse"}, "streamFormat"},
		"a negative rate":     {endpoint.Endpoint{ID: "ep", Limits: map[string]endpoint.Limit{"run": {Requests: -1}}}, "limits.run"},
		"a negative bound":    {endpoint.Endpoint{ID: "ep", Limits: map[string]endpoint.Limit{"status": {Concurrent: -1}}}, "limits.status"},
		"a negative lease":    {endpoint.Endpoint{ID: "ep", Lease: -time.Second}, "leaseMs"},
		"a nanosecond of ttl": {endpoint.Endpoint{ID: "ep", TTL: 1}, "ttlMs"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tt.e.Complete()
			checkField(t, err, tt.field)
		})
	}
}

func TestCompleteCountsCharactersOfAName(t *testing.T) {
	if _, err := (endpoint.Endpoint{ID: "ep", Name: strings.Repeat("é", endpoint.MaxName)}).Complete(); err != nil {
		t.Errorf("%d characters: got %v, want them taken", endpoint.MaxName, err)
	}
}

func TestValidID(t *testing.T) {
	tests := map[string]bool{
		"a": true, "echo": true, "A_b-9": true, "environment": true, "Env": true,
		strings.Repeat("x", 64): true, strings.Repeat("x", 65): false,
		"": false, "env": false, "drain": false, "a.b": false, "a*": false, ">": false, "a b": false, "a/b": false, "é": false, "a\n": false,
	}
	for id, want := range tests {
		if got := endpoint.ValidID(id); got != want {
			t.Errorf("%q: got %v, want %v", id, got, want)
		}
	}
}
