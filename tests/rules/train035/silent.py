from tests.rules.programs import Decoder
from tests.rules.train035.fires import _chats, _marked, _padded, _trained


def _ignored(tokens, sizes):
    """The one line that ignores from the first column on: two of them would be silent anyway."""
    labels = tokens.masked_fill(tokens == 0, -100)
    for row, size in enumerate(sizes):
        labels[row, :size] = -100
    return _trained(Decoder(), tokens, labels)


def prompts_behind_their_padding():
    chats = _chats()
    tokens = _padded(chats)
    labels = tokens.masked_fill(tokens == 0, -100)
    for row, (prompt, answer) in enumerate(chats):
        begins = tokens.shape[1] - len(prompt) - len(answer)
        labels[row, begins : begins + len(prompt)] = -100
    return _trained(Decoder(), tokens, labels)


def answers_counted_from_the_end():
    tokens = _padded(_chats())
    return _ignored(tokens, [-3] * len(tokens))


def rows_that_are_padded_on_the_right():
    chats = _chats()
    tokens = _padded(chats, left=False)
    labels = tokens.masked_fill(tokens == 0, -100)
    for row, (prompt, _) in enumerate(chats):
        for place in range(len(prompt)):
            labels[row, place] = -100
    return _trained(Decoder(), tokens, labels)


def texts_without_a_prompt_beside_others():
    chats = [(prompt if row % 2 else [], answer) for row, (prompt, answer) in enumerate(_chats())]
    tokens = _padded(chats)
    labels = tokens.masked_fill(tokens == 0, -100)
    for row, (prompt, answer) in enumerate(chats):
        begins = tokens.shape[1] - len(answer)
        labels[row, begins - len(prompt) : begins] = -100
    return _trained(Decoder(), tokens, labels)


def whole_texts():
    tokens = _padded(_chats())
    return _trained(Decoder(), tokens, tokens.masked_fill(tokens == 0, -100))


def prompts_with_a_mark_behind_their_padding__no_note():
    tokens = _padded(_marked())
    return _ignored(tokens, [-3] * len(tokens))


def prompts_of_one_size__no_note():
    return _ignored(_padded(_marked((6, 6, 6, 6))), [6] * 4)


def one_column_for_all_rows__no_note():
    """Half a text is context, wherever its prompt ends."""
    return _ignored(_padded(_marked()), [6] * 4)


def half_of_each_text_is_context__no_note():
    tokens = _padded(_chats())
    return _ignored(tokens, tokens.shape[1] - (tokens != 0).sum(1) // 2)
