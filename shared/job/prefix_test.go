package job_test

import (
	"testing"
	"time"

	"flightline/shared/job"
)

func TestTheBeginningOfAnIDIsASpanOfTime(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli
	for text, want := range map[string][2]int64{
		"01920c2e-7a4b-7c1d-8e2f-3a4b5c6d7e8f":      {0x01920c2e7a4b, 0x01920c2e7a4c},
		"sync-01920c2e-7a4b-7c1d-8e2f-3a4b5c6d7e8f": {0x01920c2e7a4b, 0x01920c2e7a4c},
		"01920c2e-7a4b":                         {0x01920c2e7a4b, 0x01920c2e7a4c},
		"01920c2e-7a4b-7":                       {0x01920c2e7a4b, 0x01920c2e7a4c},
		"01920c2e-":                             {0x01920c2e0000, 0x01920c2f0000},
		"01920c2e":                              {0x01920c2e0000, 0x01920c2f0000},
		"sync-0192":                             {0x019200000000, 0x019300000000},
		"0":                                     {0, 0x100000000000},
		"":                                      {},
		"sync-":                                 {},
		"sync":                                  {},
		"g":                                     {},
		"01920C2E":                              {},
		"01920c2e7":                             {},
		"0192-":                                 {},
		"-":                                     {},
		"01920c2e-7a4b-4":                       {}, // another version
		"01920c2e-7a4b-7c1d-f":                  {}, // another variant
		"01920c2e-7a4b-7c1d-8e2f-3a4b5c6d7e8f0": {},
	} {
		from, to, ok := job.MadeWithin(text)
		if wanted := want[1] != 0; ok != wanted || ok && (!from.Equal(at(want[0])) || !to.Equal(at(want[1]))) {
			t.Errorf("%q: got %d to %d, %v, want %d to %d", text, from.UnixMilli(), to.UnixMilli(), ok, want[0], want[1])
		}
	}
	for text, want := range map[string]bool{"0192": true, "sync-0192": true, "sync": true, "": true, "192": false, "sync-1": false} {
		if got := job.ID("sync-01920c2e-7a4b-7c1d-8e2f-3a4b5c6d7e8f").Begins(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
