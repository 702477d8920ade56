package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/client"
)

func TestLimitsFlag(t *testing.T) {
	var f limitsFlag
	for _, text := range []string{"run=1,2", "status=0,400", "run=5000,0"} {
		if err := f.Set(text); err != nil {
			t.Errorf("%s: got %v", text, err)
		}
	}
	want := limitsFlag{"run": client.Limit{Requests: 5000}, "status": client.Limit{Concurrent: 400}}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, text := range []string{"", "run", "run=", "run=5", "run=5,", "run=,5", "run=5,6,7", "run=-1,5", "run=5,-1", "run=a,b", "run=1.5,2", "run=5,6x"} {
		if err := f.Set(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}
