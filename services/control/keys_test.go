package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"flightline/shared/testenv"
	"flightline/streams"
)

func TestKeysAreShownOnceAndRevoked(t *testing.T) {
	s := start(t)
	made := s.do("POST", "/keys", `{"name":"laptop","scopes":["submit:ep1","read:*","control"]}`)
	s.expect("create", made, 200, "", "")
	plain, _ := made.body["key"].(string)
	id, _ := made.body["id"].(string)
	if !strings.HasPrefix(plain, "fl_") || !strings.HasSuffix(plain, fmt.Sprint(made.body["last4"])) || made.body["name"] != "laptop" {
		t.Errorf("got an answer of another form with %d fields", len(made.body))
	}
	if scopes := fmt.Sprint(made.body["scopes"]); scopes != "[submit:ep1 read:* control]" {
		t.Errorf("got scopes %s", scopes)
	}
	list := s.doAs(plain, "GET", "/keys", "")
	if list.status != 200 || !strings.HasPrefix(list.raw, "[") || !strings.Contains(list.raw, id) {
		t.Errorf("got %d %s", list.status, list.raw)
	}
	for _, secret := range []string{plain, "hash", `"key"`} {
		if strings.Contains(list.raw, secret) {
			t.Error("the list gives something away")
		}
	}
	if got := s.do("DELETE", "/keys/"+id, ""); got.status != 204 {
		t.Errorf("got %d %s", got.status, got.raw)
	}
	testenv.Eventually(t, "the key is refused", func() bool { return s.doAs(plain, "GET", "/keys", "").status == 401 })
	s.expect("again", s.do("DELETE", "/keys/"+id, ""), 404, "not_found", "no such key")
}

func TestBadKeys(t *testing.T) {
	s := start(t)
	for name, tc := range map[string]struct{ body, text string }{
		"empty":                {"", "not valid JSON"},
		"no scopes":            {`{"name":"x"}`, "at least one scope"},
		"empty scopes":         {`{"scopes":[]}`, "at least one scope"},
		"too many scopes":      {`{"scopes":["control"` + strings.Repeat(`,"pods"`, 1000) + `]}`, "scopes must be at most 1000, got 1001"},
		"a string":             {`{"scopes":"read:*"}`, "scopes must be an array"},
		"numbers":              {`{"scopes":[1]}`, "scopes[0] must be a string"},
		"unknown":              {`{"scopes":["root"]}`, `scope "root"`},
		"no endpoint":          {`{"scopes":["read:*","submit"]}`, `scope "submit"`},
		"name is a number":     {`{"name":1,"scopes":["control"]}`, "name must be a string"},
		"name too long":        {`{"name":"` + strings.Repeat("x", 192) + `","scopes":["control"]}`, "name is longer than 191"},
		"a quota is a number":  {`{"scopes":["control"],"quota":5}`, "quota must be an object"},
		"a quota is a string":  {`{"scopes":["control"],"quota":{"requests":"5"}}`, "quota.requests must be a whole number"},
		"a quota is negative":  {`{"scopes":["control"],"quota":{"concurrent":-1}}`, "quota.concurrent must be between 0 and 1000000000, got -1"},
		"a quota is too large": {`{"scopes":["control"],"quota":{"endpoints":1000000001}}`, "quota.endpoints must be between 0 and 1000000000, got 1000000001"},
		"a quota of nothing":   {`{"scopes":["control"],"quota":{"walks":1}}`, "walks"},
	} {
		s.expect(name, s.do("POST", "/keys", tc.body), 400, "invalid_request", tc.text)
	}
}

// A key creates no more endpoints than its quota allows; those that others
// created do not count, nor do deleted ones.
func TestAKeysQuotaOfEndpoints(t *testing.T) {
	s := start(t)
	made := s.do("POST", "/keys", `{"scopes":["control"],"quota":{"endpoints":2,"requests":7}}`)
	plain, _ := made.body["key"].(string)
	if got := fmt.Sprint(made.body["quota"]); got != "map[endpoints:2 requests:7]" {
		t.Errorf("got the quota %s", got)
	}
	create := func(key, id string) answer { return s.doAs(key, "POST", "/endpoints", `{"id":"`+id+`"}`) }
	s.expect("of the administrator", s.do("POST", "/endpoints", `{"id":"other"}`), 200, "", "")
	s.expect("the first", create(plain, "one"), 200, "", "")
	s.expect("the second", create(plain, "two"), 200, "", "")
	s.expect("the third", create(plain, "three"), 429, "too_many_requests", "this key has created 2 that exist, and its quota is 2")
	if got := s.doAs(plain, "DELETE", "/endpoints/one", ""); got.status != 204 {
		t.Fatalf("got %d %s", got.status, got.raw)
	}
	s.expect("after a deletion", create(plain, "three"), 200, "", "")
	s.expect("the fourth", create(plain, "four"), 429, "too_many_requests", "its quota is 2")
	path := fmt.Sprintf("/keys/%s", made.body["id"])
	changed := s.do("PATCH", path, `{"quota":{"endpoints":3}}`)
	s.expect("a larger quota", changed, 200, "", "")
	if got := fmt.Sprint(changed.body["quota"]); got != "map[endpoints:3 requests:7]" || changed.body["key"] != nil {
		t.Errorf("got %s, want what was not named as it was", changed.raw)
	}
	s.expect("the fourth again", create(plain, "four"), 200, "", "")
	if list := s.do("GET", "/keys", ""); !strings.Contains(list.raw, `"quota":{"requests":7,"endpoints":3}`) {
		t.Errorf("got %s, want the quota in the list", list.raw)
	}
	s.expect("the default", s.do("PATCH", path, `{"quota":{"endpoints":null}}`), 200, "", "")
	s.expect("the fifth", create(plain, "five"), 200, "", "")
}

func TestBadChangesOfAKey(t *testing.T) {
	s := start(t)
	made := s.do("POST", "/keys", `{"scopes":["control"]}`)
	for name, tc := range map[string]struct{ body, text string }{
		"empty":     {"", "not valid JSON"},
		"nothing":   {`{}`, "quota is required and must be an object"},
		"null":      {`{"quota":null}`, "quota is required and must be an object"},
		"a number":  {`{"quota":5}`, "quota must be an object"},
		"a string":  {`{"quota":{"requests":"5"}}`, "quota.requests must be a whole number"},
		"negative":  {`{"quota":{"concurrent":-1}}`, "quota.concurrent must be between 0 and 1000000000, got -1"},
		"unknown":   {`{"quota":{"walks":1}}`, "quota.walks is unknown: must be of concurrent, endpoints, requests, waitingBytes, waitingJobs"},
		"the scope": {`{"quota":{},"scopes":["control"]}`, "scopes"},
	} {
		s.expect(name, s.do("PATCH", fmt.Sprintf("/keys/%s", made.body["id"]), tc.body), 400, "invalid_request", tc.text)
	}
	s.expect("no such key", s.do("PATCH", "/keys/"+strings.Repeat("0", 32), `{"quota":{}}`), 404, "not_found", "no such key")
}

func TestV1NeedsControl(t *testing.T) {
	s := start(t)
	made := s.do("POST", "/keys", `{"scopes":["admin:*"]}`)
	plain, _ := made.body["key"].(string)
	for _, call := range [][2]string{
		{"POST", "/endpoints"},
		{"GET", "/endpoints"},
		{"GET", "/endpoints/x"},
		{"PATCH", "/endpoints/x"},
		{"POST", "/endpoints/x/update"},
		{"DELETE", "/endpoints/x"},
		{"POST", "/keys"},
		{"GET", "/keys"},
		{"PATCH", "/keys/x"},
		{"DELETE", "/keys/x"},
	} {
		for _, key := range []string{plain, "", "nobody"} {
			s.expect(call[0]+call[1], s.doAs(key, call[0], call[1], "{}"), 401, "unauthorized", "API key")
		}
	}
}

// A power cut must neither bring a revoked key back nor lose what was answered.
func TestChangesAreAnsweredOnceTheyAreOnTheDisk(t *testing.T) {
	var broken atomic.Value // the stream that cannot be written to the disk
	broken.Store("")
	s := startWith(t, func(_ context.Context, stream string) error {
		if stream == broken.Load() {
			return errors.New("broken disk")
		}
		return nil
	})
	key := s.do("POST", "/keys", `{"scopes":["read:*"]}`)
	s.expect("a key, with a good disk", key, 200, "", "")
	s.expect("an endpoint, with a good disk", s.do("POST", "/endpoints", `{"id":"ep"}`), 200, "", "")
	made := s.do("POST", "/pods", `{"imageName":"busybox"}`)
	s.expect("a pod, with a good disk", made, 201, "", "")
	s.expect("a worker, with a good disk", s.do("POST", "/endpoints/ep/workers", `{"id":"w"}`), 200, "", "")
	for _, tc := range []struct{ stream, method, path, body string }{
		{streams.Bucket(streams.BucketTokens), "POST", "/endpoints/ep/workers/w/drain", ""},
		{streams.Bucket(streams.BucketPods), "POST", "/endpoints/ep/workers/w/drain", ""}, // a worker without a token drains by its pod alone
		{streams.Bucket(streams.BucketWorkerPods), "POST", "/endpoints/ep/workers/w/drain", ""},
		{streams.Bucket(streams.BucketPods), "DELETE", "/endpoints/ep/workers/w", ""},
		{streams.Bucket(streams.BucketWorkerPods), "DELETE", "/endpoints/ep/workers/w", ""},
		{streams.Bucket(streams.BucketTokens), "DELETE", "/endpoints/ep/workers/w", ""}, // once more, as a client does after a 503
		{streams.Bucket(streams.BucketPods), "POST", "/pods", `{"imageName":"busybox"}`},
		{streams.Bucket(streams.BucketWorkerPods), "PATCH", fmt.Sprintf("/pods/%s", made.body["id"]), `{"name":"new"}`}, // a worker's pod is there
		{streams.Bucket(streams.BucketPods), "DELETE", fmt.Sprintf("/pods/%s", made.body["id"]), ""},
		{streams.Bucket(streams.BucketWorkerPods), "DELETE", fmt.Sprintf("/pods/%s", made.body["id"]), ""},
		{streams.Bucket(streams.BucketTokens), "DELETE", fmt.Sprintf("/pods/%s", made.body["id"]), ""}, // the worker's token goes with it
		{streams.Bucket(streams.BucketKeys), "POST", "/keys", `{"scopes":["read:*"]}`},
		{streams.Bucket(streams.BucketKeys), "PATCH", fmt.Sprintf("/keys/%s", key.body["id"]), `{"quota":{}}`},
		{streams.Bucket(streams.BucketKeys), "DELETE", fmt.Sprintf("/keys/%s", key.body["id"]), ""},
		{streams.Bucket(streams.BucketKeys), "DELETE", fmt.Sprintf("/keys/%s", key.body["id"]), ""},
		{streams.Bucket(streams.BucketEndpoints), "POST", "/endpoints", `{"id":"other"}`},
		{streams.Bucket(streams.BucketEndpoints), "PATCH", "/endpoints/ep", `{"name":"new"}`},
		{streams.Bucket(streams.BucketTokens), "DELETE", "/endpoints/ep", ""},
		{streams.Bucket(streams.BucketDestinations), "DELETE", "/endpoints/ep", ""},
		{streams.Bucket(streams.BucketEndpoints), "DELETE", "/endpoints/ep", ""},
		{streams.Bucket(streams.BucketEndpoints), "DELETE", "/endpoints/ep", ""},
	} {
		broken.Store(tc.stream)
		s.expect(tc.method+" "+tc.path, s.do(tc.method, tc.path, tc.body), 503, "unavailable", "storage")
	}
}

// Reading all endpoints for each new one made a thousand of them slow, and the
// process large.
func TestAnEndpointIsMadeWithoutReadingTheOthers(t *testing.T) {
	s := start(t)
	reads := testenv.Subscribe(t, s.bus.NC, "$JS.API.CONSUMER.CREATE."+streams.Bucket(streams.BucketEndpoints)+".>")
	made := 0
	testenv.EventuallyNone(t, func() string { // the copy in memory is filled first
		before, _, _ := reads.Pending()
		s.expect("create", s.do("POST", "/endpoints", fmt.Sprintf(`{"id":"ep%d"}`, made)), 200, "", "")
		made++
		if err := s.bus.NC.Flush(); err != nil {
			return err.Error()
		}
		if after, _, _ := reads.Pending(); after > before {
			return fmt.Sprintf("endpoint %d: got all endpoints read %d times, want none", made, after-before)
		}
		return ""
	})
}
