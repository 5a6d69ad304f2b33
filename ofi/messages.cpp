// The functions of libfabric for messages, tagged and untagged.
#include "ofi/messages.hpp"

#include "ofi/multi_receive.hpp"

namespace pt2p_ofi {

namespace {

ssize_t receive_message(Endpoint &e, void *buffer, size_t length, fi_addr_t from, void *context, uint64_t flags,
                        bool reports)
{
	return receive_untagged(e, {buffer, length, from, context, reports, (flags & FI_MULTI_RECV) != 0, {}});
}

const uint64_t *data_in(uint64_t flags, const uint64_t &data) { return flags & FI_REMOTE_CQ_DATA ? &data : nullptr; }

ssize_t msg_recv(fid_ep *f, void *buffer, size_t length, void *, fi_addr_t from, void *context)
{
	Endpoint &e = endpoint_of(f);
	if (__builtin_expect(e.quick_receives && !e.multi->posted && !(e.rx_flags & FI_MULTI_RECV), 1))
		return receive_one(e, buffer, length, from, untagged, untagged, FI_MSG, context);
	return receive_message(e, buffer, length, from, context, e.rx_flags, e.rx_reports);
}

ssize_t msg_recvv(fid_ep *f, const iovec *segments, void **, size_t count, fi_addr_t from, void *context)
{
	Endpoint &e = endpoint_of(f);
	if (count > max_segments)
		return -FI_EINVAL;
	return guarded([&] {
		return static_cast<int>(receive_untagged(
		    e, {nullptr, 0, from, context, e.rx_reports, false, std::vector<iovec>(segments, segments + count)}));
	});
}

ssize_t msg_recvmsg(fid_ep *f, const fi_msg *msg, uint64_t flags)
{
	Endpoint &e = endpoint_of(f);
	const bool told = e.reports_receive(flags);
	if (msg->iov_count <= 1)
		return receive_message(e, msg->iov_count ? msg->msg_iov->iov_base : nullptr,
		                       msg->iov_count ? msg->msg_iov->iov_len : 0, msg->addr, msg->context, flags, told);
	if (msg->iov_count > max_segments || flags & FI_MULTI_RECV)
		return -FI_EINVAL;
	return guarded([&] {
		return static_cast<int>(receive_untagged(e, {nullptr, 0, msg->addr, msg->context, told, false,
		                                             std::vector<iovec>(msg->msg_iov, msg->msg_iov + msg->iov_count)}));
	});
}

ssize_t msg_send(fid_ep *f, const void *buffer, size_t length, void *, fi_addr_t to, void *context)
{
	return send_one(endpoint_of(f), buffer, length, to, untagged, FI_MSG, context);
}

ssize_t msg_sendv(fid_ep *f, const iovec *segments, void **, size_t count, fi_addr_t to, void *context)
{
	Endpoint &e = endpoint_of(f);
	return send_fully(e, {segments, count, to, untagged, FI_MSG, context, e.tx_flags, nullptr, e.tx_reports});
}

ssize_t msg_sendmsg(fid_ep *f, const fi_msg *msg, uint64_t flags)
{
	Endpoint &e = endpoint_of(f);
	return send_fully(e, {msg->msg_iov, msg->iov_count, msg->addr, untagged, FI_MSG, msg->context, flags,
	                      data_in(flags, msg->data), e.reports_send(flags)});
}

ssize_t msg_inject(fid_ep *f, const void *buffer, size_t length, fi_addr_t to)
{
	return inject_one(endpoint_of(f), buffer, length, to, untagged, nullptr);
}

ssize_t msg_senddata(fid_ep *f, const void *buffer, size_t length, void *, uint64_t data, fi_addr_t to, void *context)
{
	return send_one(endpoint_of(f), buffer, length, to, untagged, FI_MSG, context, &data);
}

ssize_t msg_injectdata(fid_ep *f, const void *buffer, size_t length, uint64_t data, fi_addr_t to)
{
	return inject_one(endpoint_of(f), buffer, length, to, untagged, &data);
}

ssize_t tagged_recv(fid_ep *f, void *buffer, size_t length, void *, fi_addr_t from, uint64_t tag, uint64_t ignore,
                    void *context)
{
	Endpoint &e = endpoint_of(f);
	return receive_one(e, buffer, length, from, tag & tag_bits, ~(ignore & tag_bits), FI_TAGGED, context);
}

ssize_t tagged_recvv(fid_ep *f, const iovec *segments, void **, size_t count, fi_addr_t from, uint64_t tag,
                     uint64_t ignore, void *context)
{
	Endpoint &e = endpoint_of(f);
	return receive_tagged_segments(e, segments, count, from, tag, ignore, context, e.rx_reports);
}

ssize_t tagged_recvmsg(fid_ep *f, const fi_msg_tagged *msg, uint64_t flags)
{
	Endpoint &e = endpoint_of(f);
	if (flags & FI_PEEK)
		return guarded([&] { return static_cast<int>(peek(e, *msg, flags)); });
	if (flags & FI_CLAIM)
		return receive_claimed(e, *msg, flags);
	return receive_tagged_segments(e, msg->msg_iov, msg->iov_count, msg->addr, msg->tag, msg->ignore, msg->context,
	                               e.reports_receive(flags));
}

ssize_t tagged_send(fid_ep *f, const void *buffer, size_t length, void *, fi_addr_t to, uint64_t tag, void *context)
{
	return send_one(endpoint_of(f), buffer, length, to, tag & tag_bits, FI_TAGGED, context);
}

ssize_t tagged_sendv(fid_ep *f, const iovec *segments, void **, size_t count, fi_addr_t to, uint64_t tag, void *context)
{
	Endpoint &e = endpoint_of(f);
	return send_fully(e, {segments, count, to, tag & tag_bits, FI_TAGGED, context, e.tx_flags, nullptr, e.tx_reports});
}

ssize_t tagged_sendmsg(fid_ep *f, const fi_msg_tagged *msg, uint64_t flags)
{
	Endpoint &e = endpoint_of(f);
	return send_fully(e, {msg->msg_iov, msg->iov_count, msg->addr, msg->tag & tag_bits, FI_TAGGED, msg->context, flags,
	                      data_in(flags, msg->data), e.reports_send(flags)});
}

ssize_t tagged_inject(fid_ep *f, const void *buffer, size_t length, fi_addr_t to, uint64_t tag)
{
	return inject_one(endpoint_of(f), buffer, length, to, tag & tag_bits, nullptr);
}

ssize_t tagged_senddata(fid_ep *f, const void *buffer, size_t length, void *, uint64_t data, fi_addr_t to, uint64_t tag,
                        void *context)
{
	return send_one(endpoint_of(f), buffer, length, to, tag & tag_bits, FI_TAGGED, context, &data);
}

ssize_t tagged_injectdata(fid_ep *f, const void *buffer, size_t length, uint64_t data, fi_addr_t to, uint64_t tag)
{
	return inject_one(endpoint_of(f), buffer, length, to, tag & tag_bits, &data);
}

} // namespace

fi_ops_msg message_ops = {.size = sizeof(fi_ops_msg),
                          .recv = msg_recv,
                          .recvv = msg_recvv,
                          .recvmsg = msg_recvmsg,
                          .send = msg_send,
                          .sendv = msg_sendv,
                          .sendmsg = msg_sendmsg,
                          .inject = msg_inject,
                          .senddata = msg_senddata,
                          .injectdata = msg_injectdata};
fi_ops_tagged tagged_ops = {.size = sizeof(fi_ops_tagged),
                            .recv = tagged_recv,
                            .recvv = tagged_recvv,
                            .recvmsg = tagged_recvmsg,
                            .send = tagged_send,
                            .sendv = tagged_sendv,
                            .sendmsg = tagged_sendmsg,
                            .inject = tagged_inject,
                            .senddata = tagged_senddata,
                            .injectdata = tagged_injectdata};

} // namespace pt2p_ofi
