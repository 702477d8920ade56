package wakeup_test

import (
	"testing"

	"flightline/shared/wakeup"
)

func TestManySignalsWakeOnce(t *testing.T) {
	s := wakeup.New()
	s.Send()
	s.Send()
	<-s
	if len(s) != 0 {
		t.Error("got a second value")
	}
	s.Clear() // of none
	s.Send()
	s.Clear()
	if len(s) != 0 {
		t.Error("got a value that was taken back")
	}
}
