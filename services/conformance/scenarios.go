package conformance

import "slices"

// Scenario is one thing that the contract says.
type Scenario struct {
	Name string
	// Section is the heading of the contract that has it; "Clients"
	// is what the published clients need besides.
	Section string
	// Shows says what is seen when it passes.
	Shows string
	// Needs is what it cannot do without; see Config.
	Needs []string

	when phase
	play func(*play)
}

// phase is when a scenario is played. Most are while conform's worker works.
type phase int

const (
	atWork phase = iota
	// beforeWork is before the worker starts: for jobs that wait, which those that other
	// scenarios left do not disturb.
	beforeWork
	// aloneBeforeWork and lastAlone are when no other scenario is played.
	aloneBeforeWork
	lastAlone
)

// Scenarios are all scenarios, in the contract's order, which is that of the report.
func Scenarios() []Scenario {
	return slices.Concat(
		submitting(), looking(), streaming(), ending(), counting(), podLookup(), keys(), hooking(), refusing(), timing(), remembering(), clients(),
	)
}
