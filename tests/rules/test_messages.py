"""The listing of all messages has what a report says of a rule's example."""

from tests.rules.messages import listed


def test_a_rule_is_listed_with_its_line_message_facts_advice_and_knobs(tmp_path):
    title, line, message, *others = listed("SYNC004", tmp_path)
    assert title.startswith("SYNC004 explicit-synchronize: ")
    assert line.startswith("> torch.cuda.synchronize()")
    assert message.startswith("synchronize() on 12 of 12 steps")
    assert any(each.startswith("fix: Remove it") for each in others)
    assert any(each.startswith("share (0.5): ") for each in others)
