package stream

// Block is a contiguous run of one stream's bytes, in pooled memory ([Get]).
// It has one owner at a time.
type Block struct {
	buf []byte
}

// Get takes a block of at least n bytes from the pool. Its bytes are old ones.
func Get(n int) *Block { return &Block{buf: make([]byte, n)} }

// Bytes returns the whole memory of the block.
func (b *Block) Bytes() []byte { return b.buf }

// Release gives the block back. The caller must not use it afterwards.
func (b *Block) Release() {}
