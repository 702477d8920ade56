//go:build plant_ask

package queue

// plantNoAsk takes a run over without asking its holder: a bug that the chaos harness must find.
const plantNoAsk = true
