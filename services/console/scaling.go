package console

import (
	"slices"
	"time"

	"flightline/shared/client"
)

// scalingShown is how many decisions are shown, scalingBins how many points their chart has.
const scalingShown, scalingBins = 100, 120

// holdWord is the filter of decisions that kept what there was, for lack of a number.
const holdWord = "hold"

type scalingData struct {
	Endpoint, Reason string
	Reasons          []string
	Decisions        []client.ScalingDecision
	Plot             plot
}

func loadScaling(v *visit) (any, error) {
	d := &scalingData{Endpoint: v.param("endpoint"), Reason: v.query.Get("reason")}
	if err := mayControl(v, "how the workers are scaled"); err != nil {
		return nil, err
	}
	all, err := v.control.Endpoints().Scaling(v.ctx, d.Endpoint, scalingShown)
	if err != nil {
		return nil, err
	}
	if v.May("read", d.Endpoint) {
		v.follow(d.Endpoint)
	}
	d.Plot = plotOf(all)
	for _, decision := range all {
		if !slices.Contains(d.Reasons, decision.Reason) {
			d.Reasons = append(d.Reasons, decision.Reason)
		}
		if d.Reason == "" || decision.Reason == d.Reason || d.Reason == holdWord && decision.Hold {
			d.Decisions = append(d.Decisions, decision)
		}
	}
	slices.Sort(d.Reasons)
	return d, nil
}

// plotOf draws what held between decisions, the newest of which is first.
func plotOf(all []client.ScalingDecision) plot {
	if len(all) < 2 {
		return plot{}
	}
	first, last := all[len(all)-1].At, all[0].At
	step := max(time.Millisecond, last.Sub(first)/(scalingBins-1))
	queued, wanted, current := make([]int64, scalingBins), make([]int64, scalingBins), make([]int64, scalingBins)
	next := len(all) - 1
	for i := range scalingBins {
		for next > 0 && !all[next-1].At.After(first.Add(step*time.Duration(i))) {
			next--
		}
		queued[i], wanted[i], current[i] = int64(all[next].Queued), int64(all[next].Wanted), int64(all[next].Current)
	}
	return plot{Title: "Waiting jobs, and workers wanted and running", First: first, Step: step, Series: []series{
		{Name: "waiting jobs", Class: "warn", Values: queued}, {Name: "workers wanted", Class: "time", Values: wanted}, {Name: "workers", Class: "run", Values: current},
	}}
}
