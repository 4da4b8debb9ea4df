package recent_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/service/recent"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func slow(principal, shape string, took time.Duration, at int) *recent.Call {
	return &recent.Call{
		Method: "/mooring.v1.DocumentService/Find", Principal: principal, Namespace: "shop.orders",
		Shape: shape, RequestID: fmt.Sprint(at), Took: recent.Times{Total: took},
		End: start.Add(time.Duration(at) * time.Second),
	}
}

func TestCallsOfOneKind(t *testing.T) {
	var l recent.List
	l.Add(recent.Slow, slow("app", "{a: ?}", 2*time.Second, 1))
	l.Add(recent.Slow, slow("app", "{a: ?}", 5*time.Second, 2))
	l.Add(recent.Slow, slow("app", "{a: ?}", 3*time.Second, 3))
	l.Add(recent.Slow, slow("app", "{b: ?}", 4*time.Second, 4))
	got := l.Entries(recent.Slow)
	if len(got) != 2 {
		t.Fatalf("%d entries, want 2: %+v", len(got), got)
	}
	first := got[0]
	if first.Shape != "{a: ?}" || first.Count != 3 || first.RequestID != "2" ||
		!first.First.Equal(start.Add(time.Second)) || !first.Last.Equal(start.Add(3*time.Second)) {
		t.Errorf("%+v", first)
	}
	if got[1].Shape != "{b: ?}" || got[1].Count != 1 {
		t.Errorf("%+v", got[1])
	}
	if n := len(l.Entries(recent.Refused)); n != 0 {
		t.Errorf("%d refused entries", n)
	}
}

func TestRefusedNewestFirst(t *testing.T) {
	var l recent.List
	for i, reason := range []string{"Overloaded", "PermissionDenied", "Overloaded"} {
		l.Add(recent.Refused, &recent.Call{
			Code: codes.PermissionDenied, Reason: reason,
			End: start.Add(time.Duration(i) * time.Second),
		})
	}
	got := l.Entries(recent.Refused)
	if len(got) != 2 || got[0].Reason != "Overloaded" || got[0].Count != 2 {
		t.Errorf("%+v", got)
	}
}

// TestOneFloods has a principal that makes calls of many kinds beside one that makes few.
func TestOneFloods(t *testing.T) {
	var l recent.List
	l.Add(recent.Slow, slow("quiet", "{a: ?}", time.Second, 0))
	for i := range 3 * recent.MaxEntries {
		l.Add(recent.Slow, slow("loud", fmt.Sprintf("{f%d: ?}", i), time.Second, i+1))
	}
	got := l.Entries(recent.Slow)
	if len(got) != recent.MaxEntries {
		t.Errorf("%d entries, want %d", len(got), recent.MaxEntries)
	}
	found := false
	for _, e := range got {
		found = found || e.Principal == "quiet"
	}
	if !found {
		t.Error("the quiet principal's call was pushed out")
	}
	if got[0].Shape != fmt.Sprintf("{f%d: ?}", 3*recent.MaxEntries-1) {
		t.Errorf("the newest is %q", got[0].Shape)
	}
}

func TestLongTexts(t *testing.T) {
	var l recent.List
	long := strings.Repeat("ü", 1<<20)
	l.Add(recent.Refused, &recent.Call{Namespace: long, Principal: long, Message: long})
	e := l.Entries(recent.Refused)[0]
	for _, text := range []string{e.Namespace, e.Principal, e.Message} {
		if len(text) > 410 || !strings.HasSuffix(text, "ü…") {
			t.Errorf("%d bytes", len(text))
		}
	}
}

func TestNone(t *testing.T) {
	var l *recent.List
	l.Add(recent.Slow, &recent.Call{})
	if l.Entries(recent.Slow) != nil {
		t.Error("entries of none")
	}
}

func TestManyAtOnce(t *testing.T) {
	var l recent.List
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 500 {
				l.Add(recent.Slow, slow(fmt.Sprint(i), fmt.Sprint(j), time.Second, j))
				l.Entries(recent.Slow)
			}
		})
	}
	all.Wait()
	if n := len(l.Entries(recent.Slow)); n != recent.MaxEntries {
		t.Errorf("%d entries", n)
	}
}
