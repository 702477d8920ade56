package main

import (
	"testing"
)

// What the model allows and refuses, step by step.
func TestStep(t *testing.T) {
	running := state{1, 1, inProgress}
	tests := map[string]struct {
		from state
		e    event
		want []state
	}{
		"a job is submitted once":              {state{1, 0, inQueue}, event{what: "submit"}, nil},
		"a pick-up":                            {state{1, 0, inQueue}, event{what: "write", status: inProgress, attempt: 1, run: 1}, []state{running}},
		"a pick-up of nothing":                 {state{}, event{what: "write", status: inProgress, attempt: 1, run: 1}, nil},
		"a takeover":                           {running, event{what: "write", status: inProgress, attempt: 1, run: 2}, []state{{1, 2, inProgress}}},
		"a run that nobody saw":                {running, event{what: "write", status: inProgress, attempt: 1, run: 3}, nil},
		"a run that was missed":                {running, event{what: "write", status: inProgress, attempt: 1, run: 3, gap: true}, []state{{1, 3, inProgress}}},
		"an outcome":                           {running, event{what: "write", status: completed, attempt: 1, run: 1}, []state{{1, 1, completed}}},
		"the same outcome, told again":         {state{1, 1, completed}, event{what: "write", status: completed, attempt: 1, run: 1}, []state{{1, 1, completed}}},
		"another outcome":                      {state{1, 1, completed}, event{what: "write", status: cancelled, attempt: 1, run: 1}, nil},
		"an outcome of an older run":           {state{1, 2, inProgress}, event{what: "write", status: completed, attempt: 1, run: 1}, nil},
		"a run after the outcome":              {state{1, 1, completed}, event{what: "write", status: inProgress, attempt: 1, run: 2}, nil},
		"a cancel of what waits":               {state{1, 0, inQueue}, event{what: "cancel"}, []state{{1, 0, cancelled}}},
		"a second cancel":                      {state{1, 0, cancelled}, event{what: "cancel"}, []state{{1, 0, cancelled}}},
		"a cancel of what is over":             {state{1, 1, failed}, event{what: "cancel"}, nil},
		"a refused cancel of what runs":        {running, event{what: "cancel refused"}, nil},
		"a retry":                              {state{1, 1, timedOut}, event{what: "retry"}, []state{{2, 0, inQueue}}},
		"a retry that came second":             {state{2, 0, inQueue}, event{what: "retry"}, []state{{2, 0, inQueue}}},
		"a retry of what was never over":       {running, event{what: "retry"}, nil},
		"a refused retry of what failed":       {state{1, 1, failed}, event{what: "retry refused"}, nil},
		"an attempt that nobody asked for":     {state{1, 1, failed}, event{what: "write", status: inProgress, attempt: 2, run: 1}, nil},
		"a new ttl for the attempt before":     {state{2, 0, inQueue}, event{what: "write", status: failed, attempt: 1, run: 1}, []state{{2, 0, inQueue}}},
		"a read of what is not":                {running, event{what: "read", status: completed}, nil},
		"a submission that may have failed":    {state{}, event{what: "submit?"}, []state{{}, {1, 0, inQueue}}},
		"a retry that may have been forgotten": {state{1, 1, failed}, event{what: "retry?"}, []state{{2, 0, inQueue}, {1, 1, failed}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := step(tt.from, tt.e)
			if len(got) != len(tt.want) {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			}
		})
	}
}
