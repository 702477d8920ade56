package registry

import (
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/testenv"
	"flightline/streams"
)

// Who looks at the pods again and again gets the same list, until one of them changes.
func TestKnownPodsAreMadeOnceForEachChange(t *testing.T) {
	t.Parallel()
	_, r := newRegistry(t)
	testenv.Background(t, r.Run)
	at := time.Now().UTC()
	create := func(id, endpoint string, driver pod.Driver) {
		t.Helper()
		if err := r.Pods.Create(t.Context(), pod.Pod{ID: id, Endpoint: endpoint, Driver: driver, Status: pod.Running, Created: at}); err != nil {
			t.Fatal(err)
		}
	}
	create("b", "ep", pod.Process)
	create("a", "ep2", "") // their owners started them: several endpoints may have one of an id
	create("a", "ep", "")
	create("alone", "", pod.Docker)
	known := func() KnownPods {
		t.Helper()
		k, err := r.Pods.Known(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	testenv.Eventually(t, "the watch has brought all of them", func() bool {
		first, second := known(), known()
		return len(first.All) == 4 && &first.All[0] == &second.All[0]
	})
	k := known()
	if ep := k.Of["ep"]; len(ep) != 2 || ep[0].ID != "a" || ep[1].ID != "b" || len(k.Of["ep2"]) != 1 || len(k.Of[""]) != 1 || len(k.Of) != 3 {
		t.Errorf("got %+v", k.Of)
	}
	if p, none := k.Find("ep2", "a"), k.Find("ep2", "b"); p.Endpoint != "ep2" || none.ID != "" {
		t.Errorf("got %+v and %+v", p, none)
	}
	if _, err := r.Pods.Move(t.Context(), "b", pod.Exit, "ended", at, nil); err != nil {
		t.Fatal(err)
	}
	if p := known().Find("ep", "b"); p.Status != pod.Exited {
		t.Errorf("after the move: got %s, want it EXITED at once", p.Status)
	}
	if p := k.Find("ep", "b"); p.Status != pod.Running {
		t.Errorf("the list of before: got %s, want it as it was", p.Status)
	}
	list, err := r.Pods.List(t.Context())
	if err != nil || len(list) != 4 || list[0].ID != "a" || list[3].ID != "b" {
		t.Fatalf("got %+v, %v, want them by id", list, err)
	}
	list[0].Name = "mine"
	if p := known().All[0]; p.Name == "mine" {
		t.Error("a change of what List returned is in what Known returns")
	}
}

// A part of the pods would be taken for all.
func TestKnownPodsAreNoneIfSomeCannotBeRead(t *testing.T) {
	t.Parallel()
	b, r := newRegistry(t)
	if err := r.Pods.Create(t.Context(), pod.Pod{ID: "w", Endpoint: "ep", Driver: pod.Process, Status: pod.Running}); err != nil {
		t.Fatal(err)
	}
	if err := b.JS.DeleteStream(t.Context(), streams.Bucket(streams.BucketWorkerPods)); err != nil {
		t.Fatal(err)
	}
	if known, err := r.Pods.Known(t.Context()); err == nil || len(known.All) > 0 || len(known.Of) > 0 {
		t.Errorf("got %+v, %v, want an error and no pods", known, err)
	}
}

// No watch reports that a record has expired.
func TestAKnownPodExpires(t *testing.T) {
	t.Parallel()
	_, r := agingRegistry(t, 2*time.Second)
	testenv.Background(t, r.Run)
	for id, endpoint := range map[string]string{"w": "ep", "kept": ""} {
		if err := r.Pods.Create(t.Context(), pod.Pod{ID: id, Endpoint: endpoint, Driver: pod.Process, Status: pod.Exited}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[bool]bool{}
	testenv.Eventually(t, "the record of the worker has expired", func() bool {
		known, err := r.Pods.Known(t.Context())
		if err != nil {
			return false
		}
		there := known.Find("ep", "w").ID != ""
		seen[there] = true
		return !there && seen[true] && known.Find("", "kept").ID != ""
	})
}
