package terminal

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheLiveLineIsRewrittenAndRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		l := &Live{out: &screen}
		broken := errors.New("broken")
		err := l.During(func() error {
			<-time.After(150 * time.Millisecond)
			l.Set("IN_PROGRESS")
			<-time.After(100 * time.Millisecond)
			return broken
		})
		if !errors.Is(err, broken) {
			t.Errorf("got %v, want the wait's own error", err)
		}
		want := eraseLine + "waiting  0.1s" + eraseLine + "IN_PROGRESS  0.2s" + eraseLine
		if got := screen.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestNoLiveLineWhereNobodyLooks(t *testing.T) {
	var pipe strings.Builder
	if err := NewLive(&pipe).During(func() error { return nil }); err != nil || pipe.Len() > 0 {
		t.Errorf("got %q, %v, want nothing", pipe.String(), err)
	}
}
