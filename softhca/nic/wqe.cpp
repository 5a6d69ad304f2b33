#include "softhca/nic/wqe.hpp"

#include <algorithm>
#include <cstring>
#include <endian.h>

namespace softhca {

namespace {

constexpr uint32_t inline_data = 0x80000000;  // in a length: the bytes follow
constexpr uint32_t long_address = 0x80000000; // in a destination: the address vector has 48 bytes, not 16
constexpr uint32_t route_flag = 1u << 30;     // among the flow label and the GID index
constexpr uint32_t number_mask = 0xffffff;    // of queue pairs

// Reads a WQE from its front. Past the end, everything is zero and `ok` false.
class Cursor {
public:
	Cursor(const uint8_t *bytes, size_t size) : bytes_(bytes), size_(size) {}

	uint16_t be16() { return be16toh(take<uint16_t>()); }
	uint32_t be32() { return be32toh(take<uint32_t>()); }
	uint64_t be64() { return be64toh(take<uint64_t>()); }
	uint8_t byte() { return take<uint8_t>(); }
	void skip(size_t n)
	{
		if (n > size_ - at_)
			ok_ = false, at_ = size_;
		else
			at_ += n;
	}
	size_t position() const { return at_; }
	bool more() const { return ok_ && at_ < size_; }
	bool ok() const { return ok_; }

private:
	template <class T>
	T take()
	{
		T value{};
		const size_t from = at_;
		skip(sizeof value);
		if (ok_)
			std::memcpy(&value, bytes_ + from, sizeof value);
		return value;
	}

	const uint8_t *bytes_;
	size_t size_, at_ = 0;
	bool ok_ = true;
};

struct Form {
	Opcode opcode;
	bool remote, atomic;
	bool datagram; // whether UD knows it
};
constexpr Form forms[] = {
    {Opcode::nop, false, false, true},
    {Opcode::rdma_write, true, false, false},
    {Opcode::rdma_write_imm, true, false, false},
    {Opcode::send, false, false, true},
    {Opcode::send_imm, false, false, true},
    {Opcode::rdma_read, true, false, false},
    {Opcode::compare_swap, true, true, false},
    {Opcode::fetch_add, true, true, false},
};

const Form *form_of(Opcode opcode, QpKind kind)
{
	for (const Form &form : forms)
		if (form.opcode == opcode)
			return kind == QpKind::dct || (kind == QpKind::ud && !form.datagram) ? nullptr : &form;
	return nullptr;
}

void read_address(Cursor &cursor, Wqe &wqe)
{
	wqe.access_key = cursor.be64(); // a Q_Key is its upper half
	const uint32_t destination = cursor.be32();
	wqe.destination = destination & number_mask;
	cursor.skip(2); // rate, service level and path bits
	wqe.lid = cursor.be16();
	if (!(destination & long_address))
		return;
	constexpr size_t router_mac = 10; // and what is reserved before it
	cursor.skip(router_mac);
	wqe.traffic_class = cursor.byte();
	wqe.hop_limit = cursor.byte();
	wqe.route = cursor.be32() & route_flag;
	const uint64_t gid[] = {htobe64(cursor.be64()), htobe64(cursor.be64())};
	std::memcpy(wqe.gid, gid, sizeof gid);
}

void read_segments(Cursor &cursor, Wqe &wqe)
{
	while (cursor.more()) {
		const uint32_t head = cursor.be32();
		DataSegment data{};
		if (head & inline_data) {
			data.is_inline = true;
			data.length = head & ~inline_data;
			data.address = cursor.position();
			// Padded, so that the next segment is aligned.
			const uint64_t end = data.address + data.length;
			cursor.skip(static_cast<size_t>((end + 15) / 16 * 16 - data.address));
		} else {
			data.length = head;
			data.key = cursor.be32();
			data.address = cursor.be64();
		}
		if (!cursor.ok())
			return;
		wqe.segments[wqe.segment_count++] = data;
		wqe.length += data.length;
	}
}

} // namespace

bool parse_wqe(std::span<const uint8_t> ring, uint16_t index, QpKind kind, Wqe &wqe)
{
	constexpr size_t segment = 16;
	// All but the large arrays at its end.
	std::memset(static_cast<void *>(&wqe), 0, offsetof(Wqe, segments));
	wqe.index = index;
	const size_t start = index % (ring.size() / wqebb_bytes) * wqebb_bytes;
	Cursor control(ring.data() + start, segment);
	const uint32_t what = control.be32(), which = control.be32();
	control.skip(3); // signature, DCI stream
	const uint8_t flags = control.byte();
	wqe.immediate = control.be32();
	wqe.opcode = static_cast<Opcode>(what & 0xff);
	wqe.qpn = which >> 8;
	wqe.bytes = (which & 0x3f) * segment;
	wqe.signalled = flags & 8;
	wqe.solicited = flags & 2;
	wqe.fence = flags >> 5;
	if (wqe.bytes < segment || wqe.bytes > ring.size() || static_cast<uint16_t>(what >> 8) != index)
		return false;

	const size_t before_end = std::min<size_t>(wqe.bytes, ring.size() - start);
	std::memcpy(wqe.raw.data(), ring.data() + start, before_end);
	std::memcpy(wqe.raw.data() + before_end, ring.data(), wqe.bytes - before_end);

	const Form *form = form_of(wqe.opcode, kind);
	if (!form)
		return false;
	Cursor cursor(wqe.raw.data(), wqe.bytes);
	cursor.skip(segment);
	if (wqe.opcode == Opcode::nop)
		return true;
	if (kind != QpKind::rc)
		read_address(cursor, wqe);
	if (form->remote) {
		wqe.remote_address = cursor.be64();
		wqe.remote_key = cursor.be32();
		cursor.skip(4);
	}
	if (form->atomic) {
		wqe.swap_or_add = cursor.be64();
		wqe.compare = cursor.be64();
	}
	read_segments(cursor, wqe);
	// An atomic operation brings back eight bytes.
	return cursor.ok() && (!form->atomic || wqe.length == 8);
}

} // namespace softhca
