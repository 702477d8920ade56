package console

import (
	"flightline/shared/client"
)

// overviewPage is how many endpoints a page of the overview has.
const overviewPage = 50

// overviewData is what the overview shows.
type overviewData struct {
	*client.Overview
	Totals overviewTotals
	// Needs is what needs a person, of all endpoints on the page.
	Needs []attention
	// After is the cursor of this page, "" for the first.
	After string
}

type overviewTotals struct {
	Queued, Running, Workers, Busy int
	DoneHour, FailedHour           int64
	Done                           []int64 // by minute
}

type attention struct{ Endpoint, Code, Text string }

func loadOverview(v *visit) (any, error) {
	after := v.query.Get("after")
	got, err := v.api.Overview(v.ctx, overviewPage, after)
	if err != nil {
		return nil, err
	}
	d := &overviewData{Overview: got, After: after}
	for _, e := range got.Endpoints {
		v.follow(e.ID)
		t := &d.Totals
		t.Queued += e.Jobs.InQueue
		t.Running += e.Jobs.InProgress
		t.Workers += e.Workers.Idle + e.Workers.Running + e.Workers.Initializing
		t.Busy += e.Workers.Running
		t.DoneHour += sum(e.LastHour.Completed)
		t.FailedHour += sum(e.LastHour.Failed)
		t.Done = added(t.Done, e.LastHour.Completed)
		for _, need := range e.Attention {
			d.Needs = append(d.Needs, attention{e.ID, need.Code, need.Text})
		}
	}
	return d, nil
}

// added is the sum of two series, value by value.
func added(a, b []int64) []int64 {
	if len(a) < len(b) {
		a = append(a, make([]int64, len(b)-len(a))...)
	}
	for i, v := range b {
		a[i] += v
	}
	return a
}
