package system

import (
	"slices"
	"testing"
	"time"
)

func TestTheAuditOfStepsSeesWhatIsWrong(t *testing.T) {
	at := func(second int, worker, text string) step {
		return step{Time: time.Unix(int64(second), 0), WorkerID: worker, Stream: "system", Text: text}
	}
	whole := []step{at(1, "a", "starting"), at(2, "b", "starting"), at(3, "a", "asked to sleep"), at(3, "a", "asleep"), at(4, "b", "ended: lost"), at(5, "a", "ended: stopped")}
	for name, test := range map[string]struct {
		steps []step
		want  []string
	}{
		"whole": {whole, nil},
		"twice": {slices.Insert(slices.Clone(whole), 3, whole[2]), []string{`worker a has the line "asked to sleep" of 1970-01-01T00:00:03Z twice`}},
		"behind the end": {append(slices.Clone(whole), at(6, "b", "ended: lost")), []string{
			`worker b has the line "ended: lost" behind its end, "ended: lost"`,
		}},
		"out of order": {slices.Insert(slices.Clone(whole), 4, at(2, "a", "loading")), []string{
			`worker a has the line "loading" of 1970-01-01T00:00:02Z behind "asleep" of 1970-01-01T00:00:03Z`,
		}},
		"no start": {whole[1:], []string{"worker a has no line that says it was starting"}},
		"no end":   {whole[:5], []string{`worker a has no end in its log, and "asleep" is its last line`}},
		"nothing":  {whole[:0], []string{"worker a has no line that says it was starting", `worker a has no end in its log, and "" is its last line`, "worker b has no line that says it was starting", `worker b has no end in its log, and "" is its last line`}},
	} {
		for i := range test.steps {
			test.steps[i].Time = test.steps[i].Time.UTC()
		}
		if got := wrongSteps(test.steps, []string{"a", "b"}); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
