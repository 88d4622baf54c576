package sender

// watch has OnAcked told of what arrives. It hears of the bytes that its source gave,
// in the source's own offsets, also after SendFrom has returned.
func (a *asker) watch() {
	if a.opts.OnAcked == nil {
		return
	}
	st := a.st
	a.told = a.pos
	st.told = append(st.told, a)
	st.send.OnAckedFunc(st.tell)
}

// release tells OnRelease that the source is not touched any more, and how it ended. If
// OnAcked has more to be told that comes first. It is called without the mutex.
func (a *asker) release(err error) {
	f := a.opts.OnRelease
	if a.opts.OnAcked == nil {
		if f != nil {
			f(err)
		}
		return
	}
	x := a.st.x
	x.host.Lock()
	a.over, a.result = true, err
	a.st.send.TellAcked()
	x.host.Unlock()
}

// tell calls what is due of OnAcked and OnRelease. It runs by stream.Host's After, so that calls do
// not overlap.
func (st *Stream) tell(int64) {
	for i := 0; ; i++ {
		st.x.host.Lock()
		if i >= len(st.told) {
			st.x.host.Unlock()
			return
		}
		a := st.told[i]
		off := min(st.send.Acked(), a.pos)
		grew := off > a.told
		a.told = max(a.told, off)
		over := a.over && (off >= a.pos || st.send.Err() != nil)
		if over {
			st.told = append(st.told[:i], st.told[i+1:]...)
			i--
		}
		st.x.host.Unlock()
		if grew {
			a.opts.OnAcked(off + a.base)
		}
		if over && a.opts.OnRelease != nil {
			a.opts.OnRelease(a.result)
		}
	}
}
