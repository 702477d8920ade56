package control

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"flightline/shared/pod"
)

// A list is read to its end by its Link headers, and each thing is there once.
func TestListsComeInPages(t *testing.T) {
	s := start(t)
	now := s.queue.Now().UTC()
	var ids []string
	for i := range 7 {
		id := fmt.Sprintf("x%d", i)
		ids = append(ids, id)
		for _, err := range []error{
			s.registry.Pods.Create(t.Context(), pod.Pod{ID: id, Name: "a&b", Status: pod.Running, Created: now, Changed: now}),
			s.registry.Templates.Create(t.Context(), id, pod.Template{ID: id, Created: now}),
			s.registry.Volumes.Create(t.Context(), id, pod.Volume{ID: id, Created: now}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "all pods are seen", patience, func() bool {
		pods, err := s.registry.Pods.List(t.Context())
		return err == nil && len(pods) == len(ids)
	})
	for _, path := range []string{"/pods?name=a%26b&name=c&limit=3", "/templates?limit=3", "/networkvolumes?limit=3"} {
		var got []string
		pages := 0
		for at := path; at != ""; pages++ {
			answer := s.do("GET", at, "")
			var list []struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal([]byte(answer.raw), &list); err != nil || len(list) > 3 {
				t.Fatalf("%s: got %d %s, want 3 at most", at, answer.status, answer.raw)
			}
			for _, x := range list {
				got = append(got, x.ID)
			}
			at = strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(answer.header.Get("Link"), "</v1"), `>; rel="next"`), "</v1")
		}
		if !slices.Equal(got, ids) || pages != 3 {
			t.Errorf("%s: got %q in %d pages, want %q in 3", path, got, pages, ids)
		}
		base, _, _ := strings.Cut(path, "?")
		if whole := s.do("GET", base, ""); whole.header.Get("Link") != "" || strings.Count(whole.raw, `"id":"x`) != len(ids) {
			t.Errorf("%s: got Link %q and %s, want all at once", base, whole.header.Get("Link"), whole.raw)
		}
		for query, text := range map[string]string{"limit=0": "limit must be", "limit=1001": "limit must be", "limit=x": "limit must be", "cursor=" + url.QueryEscape("a.b"): "cursor must be", "cursor=YS5i": "cursor must be"} {
			s.expect(base+" "+query, s.do("GET", base+"?"+query, ""), 400, "invalid_request", text)
		}
	}
}
