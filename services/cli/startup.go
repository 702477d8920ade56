package cli

import (
	"fmt"
	"strings"
	"time"

	"flightline/shared/client"
	"flightline/shared/pod"
)

// phaseOf is the phase that the start of a pod has come to, and since when unless that is
// the last; "" if it was not begun.
func phaseOf(s *client.Startup) string {
	switch {
	case s == nil:
		return ""
	case s.Phase == pod.Ready:
		return string(s.Phase)
	}
	_, since := s.Phases().Current()
	return fmt.Sprintf("%s since %s", clean(string(s.Phase)), when(since))
}

// podPhase is the phase of a pod's start, or that its worker sleeps or wakes since.
func podPhase(p client.Pod) string {
	if p.Sleep == nil {
		return phaseOf(p.Startup)
	}
	return fmt.Sprintf("%s since %s", clean(string(p.Sleep.State)), when(p.Sleep.Since))
}

// startupRows is a row with what each phase of a start took; none before the second phase.
func startupRows(name string, s *client.Startup) [][]string {
	if s == nil {
		return nil
	}
	var parts []string
	for _, phase := range pod.AllPhases {
		if took := s.Phases().Took(phase); took > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", phase, took.Round(time.Millisecond)))
		}
	}
	if parts == nil {
		return nil
	}
	return [][]string{{name, strings.Join(parts, ", ")}}
}
