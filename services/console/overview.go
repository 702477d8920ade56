package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"flightline/shared/api"
	"flightline/shared/client"
)

const (
	// overviewPage is how many endpoints a page of the overview has, maxGPULines how many
	// machines, maxNeeds how many things that need a person.
	overviewPage, maxGPULines, maxNeeds = 50, 20, 100
	// needsTimeout is how long a page waits for what all endpoints need.
	needsTimeout = 2 * time.Second
)

// overviewData is what the overview shows.
type overviewData struct {
	*client.Overview
	Totals overviewTotals
	// Needs is the first that needs a person, of all endpoints, MoreNeeds how much more does.
	Needs     []attention
	MoreNeeds int
	Needy     needy
	// GPUs are those of the machines that have some, nil if the key may not see machines.
	GPUs *gpuSummary
	// After is the cursor of this page, "" for the first.
	After string
}

// needy are the endpoints that needed attention when all were asked for.
type needy struct {
	// Unknown is why they are not known as they are now, "" if they are.
	Unknown   string
	endpoints []client.EndpointOverview
	asked     time.Time
}

// load asks for them, unless an open page did a moment ago, before.
func (n *needy) load(v *visit, before needy) {
	if *n = before; time.Since(before.asked) < wholeInterval {
		return
	}
	ctx, cancel := context.WithTimeout(v.ctx, needsTimeout)
	defer cancel()
	got, err := v.api.WholeOverview(ctx, client.OverviewQuery{Attention: true})
	n.asked, n.Unknown = time.Now(), ""
	if err != nil {
		_, n.Unknown = problem(err)
		return
	}
	n.endpoints = got.Endpoints
}

// gpuSummary is how the GPUs of all machines stand.
type gpuSummary struct {
	// Lines are the first machines by name, More how many others there are.
	Lines []gpuLine
	More  int
	All   gpuCounts
	// Waiting are the endpoints whose jobs wait for a GPU.
	Waiting []attention
	// Unknown is why the machines are not known, "" if they are.
	Unknown string
}

// gpuLine is how the GPUs of a machine stand.
type gpuLine struct {
	Machine, Name string
	Counts        gpuCounts
}

// gpuCounts counts GPUs, each of them once.
type gpuCounts struct{ Total, Busy, Free, Quarantined, Unhealthy int }

// String names the counts that are not 0, and those that people look for.
func (n gpuCounts) String() string {
	text := fmt.Sprintf("%d busy, %d free", n.Busy, n.Free)
	if n.Quarantined > 0 {
		text += fmt.Sprintf(", %d quarantined", n.Quarantined)
	}
	if n.Unhealthy > 0 {
		text += fmt.Sprintf(", %d unhealthy", n.Unhealthy)
	}
	return text
}

func (n *gpuCounts) add(g client.MachineGPU) {
	n.Total++
	switch {
	case g.Quarantine != nil:
		n.Quarantined++
	case !g.Healthy:
		n.Unhealthy++
	case len(g.Claims) > 0:
		n.Busy++
	default:
		n.Free++
	}
}

// gpusOf counts the GPUs of machines.
func gpusOf(machines []client.MachineInventory) *gpuSummary {
	d := &gpuSummary{}
	for _, m := range machines {
		line := gpuLine{Machine: m.ID, Name: cmp.Or(m.Hostname, m.ID)}
		for _, g := range m.GPUs {
			line.Counts.add(g)
			d.All.add(g)
		}
		if line.Counts.Total > 0 {
			d.Lines = append(d.Lines, line)
		}
	}
	slices.SortFunc(d.Lines, func(a, b gpuLine) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Machine, b.Machine))
	})
	if d.More = max(0, len(d.Lines)-maxGPULines); d.More > 0 {
		d.Lines = d.Lines[:maxGPULines]
	}
	return d
}

// loadGPUs asks for the machines, which the rest of the overview does not need.
func loadGPUs(v *visit) *gpuSummary {
	if !v.May("pods", "") {
		return nil
	}
	machines, err := v.control.Machines(v.ctx)
	if err != nil {
		_, text := problem(err)
		return &gpuSummary{Unknown: text}
	}
	return gpusOf(machines)
}

type overviewTotals struct {
	Queued, Running, Workers, Busy int
	DoneHour, FailedHour           int64
	Done                           []int64 // by minute
}

type attention struct{ Endpoint, Code, Text string }

// loadOverview leads a key that reads no endpoint to the page of the system, which each may see.
func loadOverview(v *visit) (any, error) {
	if !v.mayReadSome() {
		return nil, &redirect{Root + "/system"}
	}
	after := v.query.Get("after")
	got, err := v.api.Overview(v.ctx, client.OverviewQuery{Limit: overviewPage, Cursor: after})
	if err != nil {
		return nil, err
	}
	d := &overviewData{Overview: got, After: after, GPUs: loadGPUs(v)}
	v.follow("")
	d.loadNeeds(v)
	for _, e := range got.Endpoints {
		t := &d.Totals
		t.Queued += e.Jobs.InQueue
		t.Running += e.Jobs.InProgress
		t.Workers += e.Workers.Idle + e.Workers.Running + e.Workers.Initializing
		t.Busy += e.Workers.Running
		t.DoneHour += sum(e.LastHour.Completed)
		t.FailedHour += sum(e.LastHour.Failed)
		t.Done = added(t.Done, e.LastHour.Completed)
	}
	return d, nil
}

// loadNeeds finds what needs a person: as the endpoints of the page stand now, and as all
// others stood a moment ago.
func (d *overviewData) loadNeeds(v *visit) {
	if whole := d.After == "" && d.Cursor == ""; !whole {
		d.Needy.load(v, lastLoad[overviewData](v).Needy)
	}
	all := slices.Clone(d.Endpoints)
	for _, e := range d.Needy.endpoints {
		if !slices.ContainsFunc(d.Endpoints, func(shown client.EndpointOverview) bool { return shown.ID == e.ID }) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b client.EndpointOverview) int { return strings.Compare(a.ID, b.ID) })
	for _, e := range all {
		for _, need := range e.Attention {
			d.addNeed(attention{e.ID, need.Code, need.Text})
		}
	}
}

func (d *overviewData) addNeed(need attention) {
	switch {
	case need.Code == api.NeedsGPU && d.GPUs != nil && len(d.GPUs.Waiting) < maxNeeds:
		d.GPUs.Waiting = append(d.GPUs.Waiting, need)
	case len(d.Needs) < maxNeeds:
		d.Needs = append(d.Needs, need)
	default:
		d.MoreNeeds++
	}
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
