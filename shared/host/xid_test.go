package host

import (
	"testing"
	"time"

	"flightline/shared/pod"
)

func TestWhichXIDErrorsAreTheCards(t *testing.T) {
	now := time.Unix(1000, 0)
	for code, want := range map[uint64]string{
		13: "", 31: "", 43: "", 45: "", 63: "", 68: "", 92: "", 94: "", 109: "", 137: "", 0: "", 9999: "",
		46:  "XID 46: GPU stopped processing",
		48:  "XID 48: double bit ECC error",
		62:  "XID 62: internal micro-controller halt",
		64:  "XID 64: GPU memory remapping failure",
		74:  "XID 74: NVLink error",
		79:  "XID 79: GPU has fallen off the bus",
		95:  "XID 95: uncontained memory error",
		119: "XID 119: GSP RPC timeout",
		120: "XID 120: GSP error",
		140: "XID 140: ECC unrecovered error",
	} {
		var r xidRecord
		ofCard := r.note("GPU-1", code, now)
		got := r.apply([]pod.GPU{{UUID: "GPU-1"}, {UUID: "GPU-2"}}, now)
		if got[0].Health != want || got[1].Health != "" || ofCard != (want != "") {
			t.Errorf("XID %d: got %q, of the card %v, want %q", code, got[0].Health, ofCard, want)
		}
	}
}

func TestAnXIDErrorIsPast(t *testing.T) {
	var r xidRecord
	now := time.Unix(1000, 0)
	r.note("GPU-1", 79, now)
	if got := r.apply([]pod.GPU{{UUID: "GPU-1"}}, now.Add(xidTime)); got[0].Health != "" {
		t.Errorf("got %q after %s", got[0].Health, xidTime)
	}
	r.note("GPU-1", 31, now.Add(xidTime/2)) // says nothing of the card
	if got := r.apply([]pod.GPU{{UUID: "GPU-1", Health: "lost"}}, now.Add(xidTime/2)); got[0].Health != "lost" {
		t.Errorf("got %q, want what the card says", got[0].Health)
	}
}
