package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestAJobFromSubmissionToResult(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	if got := s.do("GET", "/ep/status/"+id, ""); got.raw != fmt.Sprintf(`{"id":%q,"status":"IN_QUEUE"}`, id) {
		t.Errorf("queued: got %s", got.raw)
	}
	lease := s.take()
	if err := lease.Progress(t.Context(), json.RawMessage(`"half"`)); err != nil {
		t.Fatal(err)
	}
	running := s.do("POST", "/ep/status/"+id, "")
	if running.body["status"] != "IN_PROGRESS" || running.body["output"] != "half" || running.body["workerId"] != "worker-1" || running.body["executionTime"] != nil {
		t.Errorf("running: got %s", running.raw)
	}
	if _, err := lease.Complete(t.Context(), json.RawMessage(`{"ok":true}`)); err != nil {
		t.Fatal(err)
	}
	done := s.do("GET", "/ep/status/"+id, "")
	for _, field := range []string{"delayTime", "executionTime"} {
		if n, ok := done.body[field].(float64); !ok || n != float64(int64(n)) {
			t.Errorf("%s: got %v, want an integer", field, done.body[field])
		}
	}
	if done.body["status"] != "COMPLETED" || !strings.Contains(done.raw, `"output":{"ok":true}`) || done.body["retries"] != nil {
		t.Errorf("done: got %s", done.raw)
	}
}

func TestRunSyncAnswersWithTheResult(t *testing.T) {
	t.Parallel()
	s := start(t)
	var worker sync.WaitGroup
	worker.Go(func() { s.complete(`[1,2]`) })
	defer worker.Wait()
	got := s.do("POST", "/ep/runsync", `{"input":{}}`)
	if got.status != 200 || got.body["status"] != "COMPLETED" || !strings.Contains(got.raw, `"output":[1,2]`) {
		t.Errorf("got %d %s", got.status, got.raw)
	}
	if !strings.HasPrefix(got.id(), "sync-") || got.header.Get("X-Job-Id") != got.id() {
		t.Errorf("got id %q and header %q", got.id(), got.header.Get("X-Job-Id"))
	}
}

func TestAnExpiredWaitAnswersHowTheJobStands(t *testing.T) {
	t.Parallel()
	s := start(t)
	began := time.Now()
	got := s.do("POST", "/ep/runsync?wait=1000", `{"input":{}}`)
	if took := time.Since(began); took < time.Second || took > time.Second+noise {
		t.Errorf("took %s, want about 1 s", took)
	}
	if want := fmt.Sprintf(`{"id":%q,"status":"IN_QUEUE"}`, got.id()); got.status != 200 || got.raw != want {
		t.Errorf("got %d %s, want %s", got.status, got.raw, want)
	}
	again := s.do("GET", "/ep/status-sync/"+got.id()+"?wait=1000", "")
	if again.raw != got.raw {
		t.Errorf("status-sync: got %s, want %s", again.raw, got.raw)
	}
	s.complete(`1`)
	if done := s.do("POST", "/ep/status-sync/"+got.id()+"?wait=60000", ""); done.body["status"] != "COMPLETED" {
		t.Errorf("got %s", done.raw)
	}
}

// pooled is how many subscriptions the queue may keep besides, for the answers to
// what it asks at the same time: its measurements once a second.
const pooled = 1

func TestAClientThatLeavesDoesNotEndItsJob(t *testing.T) {
	t.Parallel()
	s := start(t)
	before := s.conn.NumSubscriptions()
	const clients = 3
	var conns []net.Conn
	for range clients {
		conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.base, "http://"), "/v2"))
		if err != nil {
			t.Fatal(err)
		}
		payload := `{"input":{}}`
		if _, err := fmt.Fprintf(conn, "POST /v2/ep/runsync?wait=300000 HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n%s", adminKey, len(payload), payload); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		testenv.Eventually(t, "it waits", func() bool { return s.conn.NumSubscriptions() >= before+len(conns) })
	}
	lease := s.take()
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "the waiters' subscriptions are gone", func() bool { return s.conn.NumSubscriptions() <= before+pooled })
	if _, err := lease.Complete(t.Context(), json.RawMessage(`"all the same"`)); err != nil {
		t.Fatal(err)
	}
	if got := s.do("GET", "/ep/status/"+string(lease.Job.ID), ""); got.body["status"] != "COMPLETED" {
		t.Errorf("got %s", got.raw)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	want := fmt.Sprintf(`{"id":%q,"status":"CANCELLED"}`, id)
	for range 2 { // again is fine
		if got := s.do("POST", "/ep/cancel/"+id, "{}"); got.status != 200 || got.raw != want {
			t.Errorf("got %d %s, want %s", got.status, got.raw, want)
		}
	}
	if got := s.do("GET", "/ep/status/"+id, ""); got.body["status"] != "CANCELLED" || got.body["delayTime"] == nil || got.body["executionTime"] == nil {
		t.Errorf("got %s", got.raw)
	}
	finished := s.submit()
	s.complete(`1`)
	if got := s.do("POST", "/ep/cancel/"+finished, ""); got.status != 400 || got.body["code"] != "job_finished" {
		t.Errorf("of a finished job: got %d %s", got.status, got.raw)
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	if got := s.do("POST", "/ep/retry/"+id, ""); got.status != 400 || got.body["code"] != "not_retryable" {
		t.Errorf("of a queued job: got %d %s", got.status, got.raw)
	}
	s.fail("boom")
	if got := s.do("GET", "/ep/status/"+id, ""); got.body["status"] != "FAILED" || got.body["error"] != "boom" || got.status != 200 {
		t.Errorf("failed: got %d %s", got.status, got.raw)
	}
	for range 2 { // again is fine
		if got := s.do("POST", "/ep/retry/"+id, ""); got.raw != fmt.Sprintf(`{"id":%q,"status":"IN_QUEUE"}`, id) {
			t.Errorf("got %d %s", got.status, got.raw)
		}
	}
	if got := s.do("GET", "/ep/status/"+id, ""); got.body["status"] != "IN_QUEUE" || got.body["error"] != nil {
		t.Errorf("waiting again: got %s", got.raw)
	}
	s.complete(`1`)
	if got := s.do("GET", "/ep/status/"+id, ""); got.body["retries"] != 1.0 {
		t.Errorf("got %s, want one retry", got.raw)
	}
}

func TestPurgeRemovesWhatWaits(t *testing.T) {
	t.Parallel()
	s := start(t)
	running := s.submit()
	lease := s.take()
	first, second := s.submit(), s.submit()
	if got := s.do("POST", "/ep/purge-queue", ""); got.raw != `{"removed":2,"status":"completed"}` {
		t.Errorf("got %d %s", got.status, got.raw)
	}
	for _, id := range []string{first, second} {
		if got := s.do("GET", "/ep/status/"+id, ""); got.body["status"] != "CANCELLED" {
			t.Errorf("got %s", got.raw)
		}
	}
	if got := s.do("GET", "/ep/status/"+running, ""); got.body["status"] != "IN_PROGRESS" {
		t.Errorf("running: got %s", got.raw)
	}
	if _, err := lease.Complete(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Error(err)
	}
}

func TestStatusSetsTheTTL(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	for range 2 {
		if got := s.do("GET", "/ep/status/"+id+"?ttl=1500", ""); got.body["status"] != "IN_QUEUE" {
			t.Fatalf("got %d %s", got.status, got.raw)
		}
	}
	testenv.Eventually(t, "the job expires", func() bool {
		got := s.do("GET", "/ep/status/"+id, "")
		return got.status == 404 && got.body["code"] == "job_not_found"
	})
}

// eventsOf opens the log of events and counts it.
func eventsOf(s *env) *events.Log {
	s.t.Helper()
	log := s.at.Events(s.t)
	testenv.Background(s.t, func(ctx context.Context) error { return log.Count(ctx, events.Counting{}) })
	return log
}

func TestHealth(t *testing.T) {
	t.Parallel()
	s := start(t)
	for n, kind := range []events.Kind{events.Completed, events.Failed, events.TimedOut, events.Cancelled, events.Started} {
		told := events.Event{
			Kind: kind, Endpoint: "ep", Job: job.ID("told" + strconv.Itoa(n)), Attempt: 1, Run: 2,
			Submitted: time.Now(), Queued: time.Now(), At: time.Now(), Status: job.Completed,
		}
		if err := s.service.events.Append(t.Context(), told); err != nil {
			t.Fatal(err)
		}
	}
	s.submit()
	s.take()
	s.submit()
	for id, state := range map[string]string{"a": registry.WorkerIdle, "b": registry.WorkerRunning, "c": registry.WorkerInitializing} {
		if err := s.registry.Workers.Beat(t.Context(), registry.Worker{ID: id, Endpoint: "ep", State: state}); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"jobs":{"completed":1,"failed":2,"inProgress":1,"inQueue":1,"retried":1},` +
		`"workers":{"idle":1,"initializing":1,"ready":1,"running":1,"throttled":0,"unhealthy":0}}`
	var got answer
	testenv.Eventually(t, "health tells it all", func() bool { got = s.do("GET", "/ep/health", ""); return got.raw == want })
}

func TestWhenNobodyCountsHealthSaysZero(t *testing.T) {
	t.Parallel()
	want := `{"jobs":{"completed":0,"failed":0,"inProgress":0,"inQueue":0,"retried":0},` +
		`"workers":{"idle":0,"initializing":0,"ready":0,"running":0,"throttled":0,"unhealthy":0}}`
	if got := start(t).do("GET", "/ep/health", ""); got.raw != want {
		t.Errorf("got %s", got.raw)
	}
}
