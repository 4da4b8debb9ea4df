package buffer

import (
	"sync"
	"testing"
)

func TestClasses(t *testing.T) {
	if got := sizeOf(numClasses - 1); got != Most || classOf(Most) != numClasses-1 {
		t.Errorf("the last class has %d bytes, and %d is of class %d", got, Most, classOf(Most))
	}
	for n := least; n <= Most; n += 509 {
		class := classOf(n)
		if size := sizeOf(class); size < n || class > 0 && sizeOf(class-1) >= n {
			t.Fatalf("%d bytes are of class %d, which has %d", n, class, size)
		}
		if waste := sizeOf(class) - n; waste > n/steps {
			t.Fatalf("%d of %d bytes are not used", waste, n)
		}
	}
}

func TestSizesThatAreNotLent(t *testing.T) {
	for _, n := range []int{0, Least - 1, Most + 1} {
		b := Get(n)
		if b != nil {
			t.Fatalf("Get(%d) lends", n)
		}
		b.Retain()
		b.Keep()
		b.Release()
		b.Release()
		if got := len(b.Documents(3)); got != 3 {
			t.Errorf("Documents(3) has %d", got)
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return
}

// TestReferences checks that memory is taken back after the last Release, once, and never after
// Keep. Without the tag poison another Get could have the same Buffer.
func TestReferences(t *testing.T) {
	b := Get(least)
	b.Retain()
	b.Release()
	copy(b.Bytes(), "used")
	if string(b.Bytes()[:4]) != "used" {
		t.Error("one holder has released it, and the other cannot use it")
	}
	b.Release()
	if !panics(b.Release) {
		t.Error("a second Release passes")
	}

	kept := Get(least)
	kept.Documents(1)[0] = kept.Bytes()[:5]
	copy(kept.Bytes(), "valid")
	kept.Keep()
	kept.Keep()
	kept.Release()
	if string(kept.Bytes()[:5]) != "valid" || string(kept.Documents(1)[0]) != "valid" {
		t.Errorf("what is kept reads %q", kept.Bytes()[:5])
	}
	if other := Get(least); &other.Bytes()[0] == &kept.Bytes()[0] {
		t.Error("what is kept is lent again")
	}
}

// TestHolders checks that holders may end at the same time.
func TestHolders(t *testing.T) {
	for range 200 {
		b := Get(least + 1)
		var wg sync.WaitGroup
		for range 4 {
			b.Retain()
			wg.Go(func() {
				_ = b.Bytes()[0]
				b.Release()
			})
		}
		b.Release()
		wg.Wait()
	}
}
