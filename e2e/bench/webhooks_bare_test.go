package main

import (
	"strings"
	"testing"
)

func TestTheBareLoopPostsTheSameForOtherJobs(t *testing.T) {
	was := strings.Repeat("a", 36)
	like := posted{Header: map[string]string{webhookID: "msg_" + was + "_1", "Webhook-Signature": "v1,x"}, Body: []byte(`{"id":"` + was + `"}`)}
	seen := map[string]bool{}
	for _, p := range like.others(3) {
		id := jobOf(p.Header[webhookID])
		if len(p.Body) != len(like.Body) || string(p.Body) != `{"id":"`+id+`"}` || p.Header["Webhook-Signature"] != "v1,x" || id == was {
			t.Errorf("got %+v, %s", p.Header, p.Body)
		}
		seen[id] = true
	}
	if len(seen) != 3 {
		t.Errorf("got %d jobs, want 3", len(seen))
	}
}
