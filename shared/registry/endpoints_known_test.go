package registry_test

import (
	"testing"

	"flightline/shared/endpoint"
	"flightline/shared/testenv"
)

// The autoscaler asks for it twice a second, with a thousand endpoints too.
func TestKnownEndpointsAreListedAgainOnlyAfterAChange(t *testing.T) {
	b := newBus(t)
	r, other := running(t, b), running(t, b)
	create(t, r, "ep2")
	create(t, r, "ep1")
	known := func() []endpoint.Endpoint {
		t.Helper()
		list, err := r.Endpoints.Known(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	same := func(what string) { // a process that stands still for 2 s lists them for each call
		t.Helper()
		testenv.Eventually(t, what, func() bool {
			first, second := known(), known()
			return len(first) > 0 && len(second) == len(first) && &first[0] == &second[0]
		})
	}
	same("nothing changed: the same list")
	if list := known(); len(list) != 2 || list[0].ID != "ep1" || list[1].ID != "ep2" {
		t.Errorf("got %+v, want ep1 and ep2", list)
	}
	before := known()
	if _, err := r.Endpoints.Update(t.Context(), "ep1", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.WorkersMax = 7
		return e, nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := known()[0].WorkersMax; got != 7 {
		t.Errorf("after a change: got %d workers at most, want 7", got)
	}
	if before[0].WorkersMax == 7 {
		t.Error("got the list from before changed, want it as it was")
	}
	create(t, other, "ep3")
	testenv.Eventually(t, "an endpoint that another process made", func() bool { return len(known()) == 3 })
	same("afterwards the same list again")
}

func TestEndpointsAreCountedByTheirKey(t *testing.T) {
	b := newBus(t)
	r := running(t, b)
	for id, owner := range map[string]string{"a": "mine", "b": "mine", "c": "yours", "d": ""} {
		if _, err := r.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: id, Owner: owner}); err != nil {
			t.Fatal(err)
		}
	}
	e, err := r.Endpoints.Find(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Endpoints.MarkDeleting(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	for owner, want := range map[string]int{"mine": 1, "yours": 1, "nobody": 0} {
		known, err := r.Endpoints.KnownOf(t.Context(), owner)
		if err != nil || known != want {
			t.Errorf("known of %s: got %d, %v, want %d", owner, known, err, want)
		}
		if n, err := r.Endpoints.CountOf(t.Context(), owner); err != nil || n != want {
			t.Errorf("count of %s: got %d, %v, want %d", owner, n, err, want)
		}
	}
	if n, err := open(t, b).Endpoints.KnownOf(t.Context(), "mine"); err != nil || n != 1 {
		t.Errorf("without Run: got %d, %v, want 1", n, err)
	}
}
