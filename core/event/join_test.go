package event_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/event"
)

// TestJoinEveryField fails for a field of event.Sink that Join forgets.
func TestJoinEveryField(t *testing.T) {
	calls := map[string]int{}
	listener := func() *event.Sink {
		s := &event.Sink{}
		v := reflect.ValueOf(s).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func(
				[]reflect.Value,
			) []reflect.Value {
				calls[name]++
				return nil
			}))
		}
		return s
	}
	joined := reflect.ValueOf(event.Join(nil, listener(), nil, &event.Sink{}, listener())).Elem()
	for i := range joined.NumField() {
		field := joined.Type().Field(i)
		if joined.Field(i).IsNil() {
			t.Errorf("Join drops %s", field.Name)
			continue
		}
		joined.Field(i).Call([]reflect.Value{reflect.Zero(field.Type.In(0))})
		if calls[field.Name] != 2 {
			t.Errorf("%s reached %d listeners, want 2", field.Name, calls[field.Name])
		}
	}
}

func TestJoinLeavesUnwantedNil(t *testing.T) {
	s := event.Join(nil, &event.Sink{PoolReady: func(event.PoolReady) {}}, nil)
	if s.CommandStarted != nil || s.PoolReady == nil {
		t.Errorf("Join = %+v, want PoolReady only", s)
	}
}

// TestJoinRecovers checks that a listener's panic reaches neither the emitter nor the other
// listeners, and is reported once.
func TestJoinRecovers(t *testing.T) {
	var reports, calls int
	s := event.Join(func(value any, stack []byte) {
		if reports++; value != "listener" || !strings.Contains(string(stack), "TestJoinRecovers") {
			t.Errorf("reported: %v\n%s", value, stack)
		}
	},
		&event.Sink{PoolReady: func(event.PoolReady) { calls++; panic("listener") }},
		&event.Sink{PoolReady: func(event.PoolReady) { calls++ }},
		&event.Sink{PoolReady: func(event.PoolReady) { calls++; panic("another") }})
	for range 3 {
		s.PoolReady(event.PoolReady{})
	}
	if calls != 9 || reports != 1 {
		t.Errorf("%d calls, %d reports, want 9 and 1", calls, reports)
	}
	event.Join(nil, &event.Sink{PoolReady: func(event.PoolReady) {
		panic("unreported")
	}}).PoolReady(event.PoolReady{})
}
