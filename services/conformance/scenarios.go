package conformance

import "slices"

// Scenario is one thing that the contract says.
type Scenario struct {
	Name string
	// Section is the heading of the contract under which it is said; "Clients"
	// is what the published clients need besides.
	Section string
	// Shows says what is seen when it passes.
	Shows string
	// Needs is what it cannot do without; see Config.
	Needs []string

	when phase
	play func(*play)
}

// phase is when a scenario is played: before conform's worker starts, while it
// works, or when nothing else happens.
type phase int

// The phases, in their order. The first is for jobs that wait; jobs that other
// scenarios left do not disturb it.
const (
	beforeWork phase = iota
	aloneBeforeWork
	atWork
	lastAlone
)

// Scenarios are all scenarios, in the contract's order, which is that of the report.
func Scenarios() []Scenario {
	return slices.Concat(
		submitting(), looking(), streaming(), ending(), counting(), podLookup(), keys(), hooking(), refusing(), timing(), remembering(), clients(),
	)
}
