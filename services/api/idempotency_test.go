package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// keyed sends a submission with an Idempotency-Key.
func (s *env) keyed(path, key, body string) answer {
	s.t.Helper()
	req := s.request("POST", path, strings.NewReader(body))
	req.Header.Set("Idempotency-Key", key)
	return s.send(req)
}

const someInput = `{"input":{"n":1}}`

func TestOneKeyIsOneJobWhoeverAsksAndHowever(t *testing.T) {
	t.Parallel()
	s := start(t)
	instances := []*env{s.twin(), s.twin()}
	runs := s.worker()
	var all sync.WaitGroup
	answers := make([]answer, 64)
	for i := range answers {
		all.Go(func() { answers[i] = instances[i%2].keyed("/ep/run", "one", someInput) })
	}
	all.Wait()
	fresh := 0
	for _, a := range answers {
		if a.status != 200 || a.raw != answers[0].raw || a.header.Get("X-Job-Id") != a.id() || a.body["status"] != "IN_QUEUE" {
			t.Fatalf("got %d %s, want as the first: %s", a.status, a.raw, answers[0].raw)
		}
		if a.header.Get("Idempotent-Replayed") == "" {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("got %d answers that are no replay, want 1", fresh)
	}
	id := job.ID(answers[0].id())
	testenv.Eventually(t, "the job ran", func() bool { return runs()[id] > 0 })
	if again := s.keyed("/ep/run", "one", someInput); again.raw != answers[0].raw || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("after its end: got %d %s, want the first answer, replayed", again.status, again.raw)
	}
	if got := runs(); len(got) != 1 || got[id] != 1 {
		t.Errorf("got runs %v, want one of one job", got)
	}
}

// The first request with a key claims it and is overtaken: another one queues the job,
// which a worker takes at once.
func TestAnOvertakenRequestAnswersAsTheFirst(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := queue.NewID(job.Async)
	request := job.Request{Input: json.RawMessage(`{"n":1}`)}
	claim, _, err := s.registry.Idempotency.Claim(t.Context(), "k", registry.Submission{Job: id, Mode: job.Async})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.queue.SubmitIdempotent(t.Context(), s.endpoint, id, job.Async, request); err != nil {
		t.Fatal(err)
	}
	consumer, err := s.queue.Consume(t.Context(), s.endpoint, "worker", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	if _, err := consumer.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Get("/", func(c *fiber.Ctx) error {
		turn, err := takeTurn(t.Context(), s.service.turns)
		if err != nil {
			return err
		}
		return s.service.answerSubmission(t.Context(), c, &submission{
			endpoint: s.endpoint, id: id, mode: job.Async, request: request, key: &idempotencyKey{name: "k", claim: claim}, turn: turn,
		})
	})
	got, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil), -1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	body, err := io.ReadAll(got.Body)
	if want := fmt.Sprintf(`{"id":%q,"status":"IN_QUEUE"}`, id); err != nil || string(body) != want || got.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %d %s, replayed %q and %v, want %s, replayed", got.StatusCode, body, got.Header.Get("Idempotent-Replayed"), err, want)
	}
}

func TestRunSyncIsRepeatedWithItsResult(t *testing.T) {
	t.Parallel()
	s := start(t)
	first := s.keyed("/ep/runsync?wait=1000", "k", someInput)
	if first.body["status"] != "IN_QUEUE" {
		t.Fatalf("without a worker: got %s", first.raw)
	}
	runs := s.worker()
	var results []answer
	for range 3 {
		results = append(results, s.keyed("/ep/runsync", "k", someInput))
	}
	for _, r := range results {
		if r.status != 200 || r.id() != first.id() || r.body["status"] != "COMPLETED" || r.raw != results[0].raw || r.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %d %s, want the first job's result", r.status, r.raw)
		}
	}
	if got := runs(); len(got) != 1 || got[job.ID(first.id())] != 1 {
		t.Errorf("got runs %v, want one", got)
	}
}

func TestAKeyStandsForOneRequest(t *testing.T) {
	s := start(t)
	plain, _, err := s.registry.Keys.Create(t.Context(), registry.KeySpec{Scopes: registry.AllScopes()})
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.registry.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.queue.CreateEndpoint(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	const alike = "another " + adminKey // a key may be chosen, and have spaces
	if _, err := s.registry.Keys.Put(t.Context(), alike, registry.KeySpec{Scopes: registry.AllScopes()}); err != nil {
		t.Fatal(err)
	}
	first := s.keyed("/ep/run", "k", someInput)
	for name, test := range map[string]struct {
		path, key, body, caller string
		status                  int
		same                    bool
	}{
		"the same":                    {"/ep/run", "k", someInput, "Bearer " + adminKey, 200, true},
		"with the API key bare":       {"/ep/run", "k", someInput, adminKey, 200, true},
		"another body":                {"/ep/run", "k", `{"input":{"n":2}}`, adminKey, 422, false},
		"another operation":           {"/ep/runsync", "k", someInput, adminKey, 422, false},
		"another key":                 {"/ep/run", "K", someInput, adminKey, 200, false},
		"another endpoint":            {"/other/run", "k", someInput, adminKey, 200, false},
		"another caller":              {"/ep/run", "k", someInput, plain, 200, false},
		"one with a key alike":        {"/ep/run", "k", someInput, alike, 200, false},
		"the longest key":             {"/ep/run", strings.Repeat("~", 255), someInput, adminKey, 200, false},
		"a key that is too long":      {"/ep/run", strings.Repeat("k", 256), someInput, adminKey, 400, false},
		"an empty key":                {"/ep/run", "", someInput, adminKey, 400, false},
		"a key with a space":          {"/ep/run", "a b", someInput, adminKey, 400, false},
		"a key that is not ASCII":     {"/ep/run", "schlüssel", someInput, adminKey, 400, false},
		"a body that is no good":      {"/ep/run", "bad", `{"prompt":1}`, adminKey, 400, false},
		"an endpoint that is unknown": {"/nobody/run", "k", someInput, adminKey, 404, false},
	} {
		t.Run(name, func(t *testing.T) {
			req := s.request("POST", test.path, strings.NewReader(test.body))
			req.Header["Idempotency-Key"] = []string{test.key}
			req.Header.Set("Authorization", test.caller)
			got := s.send(req)
			if got.status != test.status || (got.id() == first.id()) != test.same {
				t.Errorf("got %d %s, want %d; the same job: %t", got.status, got.raw, test.status, test.same)
			}
			if code := got.body["code"]; test.status == 422 && code != "idempotency_mismatch" {
				t.Errorf("got code %v", code)
			}
			if text, _ := got.body["error"].(string); test.status == 400 && strings.Contains(name, "key") && (!strings.Contains(text, "Idempotency-Key") || strings.Contains(name, "too long") && !strings.HasSuffix(text, "255 characters, got 256")) {
				t.Errorf("got %q, want the header named", text)
			}
		})
	}
}
