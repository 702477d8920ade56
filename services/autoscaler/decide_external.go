package autoscaler

import (
	"fmt"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
)

// decideExternal says how many workers somebody else should run.
func decideExternal(e endpoint.Endpoint, s sample, m memory, now time.Time) verdict {
	v := verdict{memory: m}
	n := needed(e, s, m, m.wanted, now)
	target := min(max(n.workers, e.WorkersMin), e.WorkersMax)
	v.reason, v.text = n.reason, n.text
	switch {
	case target > m.wanted && e.Paused(now):
		target, v.reason, v.text = m.wanted, registry.ScalingPaused, "the endpoint is paused"
	case target > m.wanted:
		v.memory.grew, v.memory.high = now, now
		if n.workers < target {
			v.reason, v.text = registry.ScalingMinimum, fmt.Sprintf("workersMin is %d", e.WorkersMin)
		}
	case target == m.wanted:
		v.memory.high = now
		v.reason, v.text = "", ""
	case m.wanted > e.WorkersMax:
		target, v.reason, v.text = e.WorkersMax, registry.ScalingBound, fmt.Sprintf("workersMax is %d", e.WorkersMax)
	case now.Sub(m.high) < e.IdleTimeout || now.Sub(m.grew) < e.IdleTimeout:
		target, v.reason, v.text = m.wanted, "", ""
	default:
		v.reason, v.text = registry.ScalingIdle, fmt.Sprintf("fewer were needed for %s", e.IdleTimeout)
	}
	v.wanted, v.memory.wanted = target, target
	return v
}

func external(e endpoint.Endpoint) bool { return e.Fleet.Driver == "" || e.Fleet.Driver == "external" }
